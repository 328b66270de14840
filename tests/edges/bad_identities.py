"""Bad images of identities, and sets of them, as data; rows as in bad_inputs.py."""

from tests.edges.bad_images import PNG
from tests.edges.bad_inputs import Bad

PEOPLE = "train reidentify --data {folder} --out {out}"
TWO = {f"train/{name}_c{camera}s1_1_1.png": PNG for name in ("0001", "0002") for camera in (1, 2)}

BAD = [
    Bad("identities: another name", PEOPLE, "expected a name such as 0002_c1s1", {"train/cat.png": PNG}),
    Bad("identities: nobody", PEOPLE, "expected images of identities", {"train/-1_c1s1_1_1.png": PNG}),
    Bad("identities: no train", PEOPLE, "expected a folder train or", {"query/0001_c1s1_1_1.png": PNG}),
    Bad(
        "identities: a file",
        PEOPLE.replace("{folder}", "{folder}/a.png"),
        "expected a folder",
        {"a.png": PNG},
    ),
    Bad(
        "identities: cameras of a ViT", f"{PEOPLE} --family vit --camera-vectors", "transreid; it is vit", TWO
    ),
]
