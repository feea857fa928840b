"""DINOv3 as the teacher of whatever term of the loss aligns: a network that saw far more than any training set."""

from fulcrum.levers.base import ANY, Card
from fulcrum.levers.shared.folder_lever import TeacherFromFolder
from fulcrum.levers.shared.published import LATENTS, claim

DINOV3_SCOPE = f"{LATENTS}, DINOv3 teacher"
DINOV3_FOLDER = {"path": ANY}


class DinoV3(TeacherFromFolder):
    name = "dinov3"
    touches = ("encode.teachers.dinov3",)
    network = "DINOv3ViTModel"
    card = Card(
        says="DINOv3 teaches in the place of the run's own teacher (arXiv:2508.10104); takes its folder, "
        "and only describes the run, as a ViT-B, without one",
        claims=(
            claim("fid", -3.56, DINOV3_SCOPE, also="REPA", settings=DINOV3_FOLDER),
            claim("cmmd", -0.06, DINOV3_SCOPE, also="REPA", settings=DINOV3_FOLDER),
            claim("dino_mmd", -0.09, DINOV3_SCOPE, also="REPA", settings=DINOV3_FOLDER),
        ),
        train_only=True,
        warns="needs a term that reads the teacher whose place it takes; a DINO-MMD looks through a sibling of this "
        "teacher: it is no fair judge of what it taught; the published numbers are of alignment with it against none",
    )
