"""Files of a study that are no plain files, or nested without end: refused in words, nothing is
written through them."""

import os

import pytest

from fulcrum.files.sealed import write_sealed
from fulcrum.judge.page import notice, read, settle
from fulcrum.levers.catalog import CATALOG
from fulcrum.measure.preview import append_to_curve, read_lines, write_curve
from fulcrum.spec.errors import BadInput
from fulcrum.studies.arm_cost import read_costs
from fulcrum.studies.cell import finished, lay_out, measuring
from fulcrum.studies.frozen_plan import freeze
from fulcrum.studies.plan_file import load
from fulcrum.studies.proof import is_proven
from fulcrum.studies.result import probes
from tests.study.small import plan

NESTED = '{"a": ' + "[" * 200_000


def no_plain_file(path, kind):
    """Something else stands at `path`; a link leads to a file that is somebody's own."""
    precious = path.parent / "precious"
    precious.write_text("data")
    if kind == "link":
        path.symlink_to(precious)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_text(NESTED)
    return precious


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "nested"])
@pytest.mark.parametrize("name", ["proof.json", "costs.json", "plan.json"])
def test_a_sealed_file_of_a_study_that_is_none_is_refused(tmp_path, name, kind):
    layout = lay_out(plan(), CATALOG, {}, tmp_path)
    folder = freeze(plan(), tmp_path)
    (folder / name).unlink(missing_ok=True)
    precious = no_plain_file(folder / name, kind)
    with pytest.raises(BadInput, match=rf"{name} (cannot be read|holds)") as error:
        freeze(plan(), tmp_path)
        is_proven(layout, folder)
        read_costs(folder, layout.arms)
    assert "remove" in error.value.hint and precious.read_text() == "data"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "nested"])
def test_what_was_measured_of_a_cell_is_refused_when_it_is_no_sealed_file(tmp_path, kind):
    how, cell = measuring(plan()).how, lay_out(plan(), CATALOG, {}, tmp_path).cells[0]
    (tmp_path / cell.key).mkdir()
    precious = no_plain_file(tmp_path / cell.key / f"measured-{how}.json", kind)
    with pytest.raises(BadInput, match=r"measured-.*json cannot be read"):
        finished(tmp_path, cell, how)
    assert precious.read_text() == "data"


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_cell_whose_result_is_no_plain_file_is_not_finished(tmp_path, kind):
    how, cell = measuring(plan()).how, lay_out(plan(), CATALOG, {}, tmp_path).cells[0]
    (tmp_path / cell.key).mkdir()
    measured = {"key": cell.key, "result": {"weights_sha256": "x"}, "metrics": {}}
    write_sealed(tmp_path / cell.key / f"measured-{how}.json", measured)
    no_plain_file(tmp_path / cell.key / "result.json", kind)
    assert finished(tmp_path, cell, how) is None


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "nested"])
def test_a_curve_that_is_no_plain_file_is_refused_and_not_written_through(tmp_path, kind):
    path = tmp_path / "curve.jsonl"
    precious = no_plain_file(path, kind)
    if kind == "nested":
        path.write_text(NESTED + "]" * 200_000 + "}\n")
    with pytest.raises(BadInput, match=r"curve.jsonl( cannot be read|: it is)"):
        read_lines(path)
    if kind != "nested":
        with pytest.raises(OSError):
            append_to_curve(tmp_path, {"images": 8, "seconds": 1.0, "validation_loss": 1.0}, "")
    if kind != "folder":
        write_curve(tmp_path, [{"images": 8, "seconds": 1.0, "validation_loss": 1.0}])
        assert read_lines(path)[0]["images"] == 8 and not path.is_symlink()
    assert precious.read_text() == "data"


@pytest.mark.parametrize("kind", ["pipe", "folder", "nested"])
def test_a_result_that_cannot_be_read_leaves_the_page_as_it_is(tmp_path, kind):
    (tmp_path / "report.html").write_text("a page")
    no_plain_file(tmp_path / "report.json", kind)
    assert settle(tmp_path) is None and notice(tmp_path) == ""
    with pytest.raises((OSError, ValueError)):
        read(tmp_path / "report.json")
    assert (tmp_path / "report.html").read_text() == "a page"


@pytest.mark.parametrize("kind", ["pipe", "folder", "nested"])
def test_a_table_of_probes_that_cannot_be_read_is_named(tmp_path, kind):
    (tmp_path / "cache").mkdir()
    no_plain_file(tmp_path / "cache" / "probes.json", kind)
    with pytest.raises(BadInput, match=r"probes.json cannot be read"):
        probes(tmp_path)


def test_a_plan_nested_without_end_is_no_toml(tmp_path):
    (tmp_path / "plan.toml").write_text("arms = " + "[" * 5_000)
    with pytest.raises(BadInput, match=r"plan.toml is not TOML"):
        load(tmp_path / "plan.toml")
