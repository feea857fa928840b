"""The world's teachers: which one a phrase gets, and that neither is taken to pictures that are not
the world's."""

from typing import ClassVar

import pytest

from fulcrum.levers.catalog import CATALOG
from fulcrum.networks.fillers import WORLD_TEACHERS, WorldTeacher
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import parse

FOREIGN = "data.source=folder(path='/pictures')"
PIXELS = ("encode.codec=pixels", "model.patch=8", "flow.predict=x")


class AnyEye(WorldTeacher):
    """A teacher for all pictures, as pretrained ones are."""

    kind: ClassVar[str] = "any_eye"
    world_only: ClassVar[bool] = False


@pytest.mark.parametrize("lever", ["repa", "irepa"])
@pytest.mark.parametrize("name", list(WORLD_TEACHERS))
def test_the_named_teacher_is_put_into_the_run_and_read_by_the_term(lever, name):
    run = parse(f"spark + {lever}(teacher={name})", CATALOG).run
    assert [(one.name, one.asset) for one in run.encode.teachers] == [(name, WORLD_TEACHERS[name])]
    assert [term.teacher for term in run.terms if term.name == "alignment"] == [name]


@pytest.mark.parametrize("lever", ["perceptual_features", "lpips"])
def test_perceptual_terms_look_through_the_named_teacher(lever):
    for name, asset in WORLD_TEACHERS.items():
        run = parse(f"spark + {lever}(teacher={name})", CATALOG, PIXELS).run
        assert [term.asset for term in run.terms if term.name == lever] == [asset]
    with pytest.raises(BadInput, match="'world' or 'supervised'"):
        parse(f"spark + {lever}(teacher=dino)", CATALOG, PIXELS)


@pytest.mark.parametrize("phrase", ["repa", "irepa(teacher=supervised)", "repa @ (0, 0.5)"])
def test_an_alignment_teacher_of_the_world_is_refused_on_foreign_pictures(phrase):
    with pytest.raises(
        BadInput, match="knows the embedded world's pictures, not those of folder"
    ) as refused:
        parse(f"spark + {phrase}", CATALOG, (FOREIGN,))
    assert (
        "dinov3(path='FOLDER', instead_of=" in refused.value.hint
        and "docs/pretrained.md" in refused.value.hint
    )


@pytest.mark.parametrize("lever", ["perceptual_features", "lpips"])
def test_perceptual_terms_of_the_world_are_refused_on_foreign_pictures(lever):
    with pytest.raises(BadInput, match=f"'{lever}' looks through the embedded world's teacher"):
        parse(f"spark + {lever}", CATALOG, (*PIXELS, FOREIGN))


def test_another_teacher_is_welcome_there():
    catalogue = CATALOG._replace(fillers=(*CATALOG.fillers, AnyEye))
    run = parse(
        "spark + repa(teacher=eye)", catalogue, (FOREIGN, "encode.teachers=[any_eye(name='eye')]")
    ).run
    assert not run.data.source.is_world and run.encode.teachers[0].kind == "any_eye"


def test_a_teacher_that_no_term_reads_is_no_reason_to_refuse():
    assert parse(
        "spark", CATALOG, (FOREIGN, "encode.teachers=[world_teacher()]")
    ).run.encode.teachers


def test_the_world_filtered_is_still_the_world():
    assert parse("spark + repa + caption_filter", CATALOG).run.data.source.is_world


def test_other_shipped_parts_are_no_teachers():
    with pytest.raises(BadInput, match="teacher_supervised"):
        parse("spark", CATALOG, ("encode.teachers=[world_teacher(asset='judge')]",))
