"""Made data to learn from without a download: each is drawn from a seed, and knows its own answers.

date_pairs          dates in forty languages and their ISO 8601 form
sum_pairs           sums, and word problems, with their answers
scene_pictures      pictures of two shapes, a sentence about each, and a reader of such pictures
related_pictures    pictures of shapes, and all relations between them
patchworks          pictures whose details only a reference shows
drawn_people        people before several cameras
drawn_hands         hands as joints, and boxes that they hold
drawn_roads         roads with lines between their lanes
moving_shapes       videos of shapes: their actions, sentences, tracks and segments
solid_clouds        clouds of points on solids
drawn_rooms         furnished bedrooms, and a checker of their rule
chains              chains whose shapes are written in their letters
"""

from typing import TYPE_CHECKING

from keras_tfm import on_demand

if TYPE_CHECKING:
    from keras_tfm.data.worlds.dates import date_pairs, date_splits
    from keras_tfm.data.worlds.folded_chains import LETTERS, chains, touching
    from keras_tfm.data.worlds.hands import drawn_hands, skeleton, write_drawn_hands
    from keras_tfm.data.worlds.movements import (
        ACTIONS,
        action_clips,
        moving_shapes,
        segmented_clips,
        sentence_clips,
        tracked_clips,
        write_segmented_clips,
        write_tracked_clips,
    )
    from keras_tfm.data.worlds.people import drawn_people, write_drawn_people
    from keras_tfm.data.worlds.related_shapes import PREDICATES, related_pictures, relations_of
    from keras_tfm.data.worlds.roads import drawn_roads, write_drawn_roads
    from keras_tfm.data.worlds.rooms import Piece, arrays_to_rooms, drawn_rooms, faults, obeys, room_arrays
    from keras_tfm.data.worlds.scenes import Thing, parsed, scene_pictures, scene_sentences, shows, things_in
    from keras_tfm.data.worlds.solid_shapes import SOLIDS, solid_clouds, solid_mesh, write_solid_clouds
    from keras_tfm.data.worlds.sums import final_answer, sum_pairs, word_problem_pairs
    from keras_tfm.data.worlds.textures import patchworks
else:
    on_demand.begin(globals())
