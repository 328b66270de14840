"""The trackers of TransT and TransTrack, functions without weights: `read(arguments, arrays)` returns the
names of what they read and what ours makes of it, by the references' names.
"""

import numpy as np

from keras_tfm.serving.tracks import associate, no_tracks
from tests.parity.references.state import check_arguments
from tests.parity.references.target import Target, moved, penalised, search_side, template_side, window

COLUMNS = "frame,tracking_id,active,age,x1,y1,x2,y2,score"


def read_target(arguments, arrays):
    """TransT's tracker of one object, given what the network says of each frame. The sizes to which windows
    are resized have no effect on the boxes.
    """
    check_arguments(
        arguments, {"window_penalty", "exemplar_size", "instance_size", "side", "init_bbox"}, "TransT"
    )
    image, penalty, grid = arrays["image"], arguments["window_penalty"], (arguments["side"],) * 2
    logits = arrays["pred_logits"].astype("float64")
    likely = 1 / (1 + np.exp(logits[..., 1] - logits[..., 0]))
    target = Target.of_box(arguments["init_bbox"])
    windows, scores, boxes = [(*target.centre, template_side(target))], [], []
    for each, found in zip(likely, arrays["pred_boxes"], strict=True):
        windows.append((*target.centre, search_side(target)))
        scores.append(penalised(each, grid, penalty))
        target, _ = moved(target, each, found, grid, image.shape[:2], penalty)
        boxes.append(target.box)
    outputs = {
        "crop_centres_and_sizes": windows,
        "penalised_scores": scores,
        "boxes_xywh": boxes,
        "channel_mean": image.mean(axis=(0, 1)),
    }
    given = [name for name in arrays if name.endswith("_centre_size")]
    for name in given:
        x, y, side = arrays[name].tolist()
        outputs[name.removesuffix("_centre_size")] = window(image, (x, y), side)
    return ["image", "pred_logits", "pred_boxes", *given], outputs


def read_tracks(arguments, arrays):
    """TransTrack's association."""
    check_arguments(arguments, {"score_thresh", "max_age", "cost_limit"}, "TransTrack")
    assert str(arrays["output_columns"]) == COLUMNS
    options = {
        "least_score": arguments["score_thresh"],
        "max_age": arguments["max_age"],
        "highest_cost": arguments["cost_limit"],
    }
    tracks, rows = no_tracks(), []
    for frame, (scores, boxes, expected) in enumerate(
        zip(arrays["scores"], arrays["boxes"], arrays["track_boxes"], strict=True)
    ):
        tracks = associate(tracks, scores, boxes, expected, **options)
        frames = np.full(len(tracks.ids), frame)
        columns = [frames, tracks.ids, tracks.is_seen, tracks.ages, *tracks.boxes.T, tracks.scores]
        rows.append(np.stack(columns, axis=-1))
    return ["scores", "boxes", "track_boxes", "output_columns"], {"output": np.concatenate(rows)}
