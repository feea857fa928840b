"""What an attack on the audit found: nothing unseen is called clean, nothing hangs, nothing is
overwritten."""

import os
import time

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from fulcrum.advice.audit import AuditOptions, audit
from fulcrum.advice.configs import read_config
from fulcrum.advice.rule import AuditRule
from fulcrum.advice.tensors import read_header
from fulcrum.cli import main
from fulcrum.spec.errors import BadInput
from tests.advise.test_audit_target import SCRIPT, rules


def header(path, text, payload=b""):
    path.write_bytes(len(text).to_bytes(8, "little") + text.encode() + payload)
    return path


def test_a_rule_that_fails_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text("x = 1\n")

    def fails(self, script):
        raise KeyError("odd")

    monkeypatch.setattr(AuditRule, "in_script", fails)
    faults = audit(str(tmp_path / "train.py")).faults
    assert faults and {fault.severity for fault in faults} == {"error"}


@pytest.mark.parametrize(
    "line", ["y = a" + ".b()" * 900, f"steps = {'9' * 400}", f"x = -{'9' * 400}"]
)
def test_long_chains_and_numbers_stop_no_rule(tmp_path, line):
    (tmp_path / "train.py").write_text(SCRIPT + line + "\n")
    assert rules(audit(str(tmp_path / "train.py"))) == ["weights-in-bf16"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.yaml", "steps: {}"), ("a.json", '{{"steps": {}}}'), ("a.toml", "steps = {}")],
)
def test_a_number_beyond_all_bounds_stops_no_rule(tmp_path, name, text):
    (tmp_path / name).write_text(text.format("9" * 400))
    assert "unreadable" not in rules(audit(str(tmp_path / name)))


def test_scripts_beside_weights_are_looked_at_and_links_are_named(tmp_path):
    save_file({"w": torch.zeros(4)}, tmp_path / "model.safetensors")
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "linked.py").symlink_to(tmp_path / "train.py")
    audited = audit(str(tmp_path))
    assert audited.kind == "checkpoint and 2 scripts"
    assert sorted((fault.rule, fault.place) for fault in audited.faults) == [
        ("unreadable", "linked.py"),
        ("weights-in-bf16", "train.py:4"),
    ]


def test_suffixes_in_capitals_are_the_same_files(tmp_path):
    save_file({"w": torch.zeros(4)}, tmp_path / "a.safetensors")
    (tmp_path / "B.SAFETENSORS").write_bytes(b"x")
    (tmp_path / "M.PT").write_bytes(b"x")
    assert sorted(fault.place.rpartition("/")[2] for fault in audit(str(tmp_path)).faults) == [
        "B.SAFETENSORS",
        "M.PT",
    ]


def test_a_pipe_among_weights_holds_nobody_up(tmp_path):
    save_file({"w": torch.zeros(4)}, tmp_path / "a.safetensors")
    os.mkfifo(tmp_path / "x.safetensors")
    (fault,) = audit(str(tmp_path)).faults
    assert fault.rule == "unreadable" and "x.safetensors" in fault.place


@pytest.mark.parametrize(
    ("text", "payload"),
    [
        ("[]", b""),
        ("{}", b""),
        ('{"__metadata__": {}}', b""),
        ('{"w": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}', bytes(4)),
        ('{"w": {"dtype": "bf16", "shape": [1000000000000], "data_offsets": [0, 4]}}', bytes(4)),
    ],
)
def test_a_header_that_says_nothing_or_lies_is_refused(tmp_path, text, payload):
    with pytest.raises(BadInput, match="names no tensor|cut off or damaged"):
        read_header(header(tmp_path / "odd.safetensors", text, payload))


def test_formats_whose_values_are_not_read_are_named(tmp_path):
    save_file(
        {"w": torch.zeros(4).to(torch.float8_e4m3fn), "v": torch.zeros(4)},
        tmp_path / "low.safetensors",
    )
    looked_at = audit(str(tmp_path / "low.safetensors"), AuditOptions(values=4096)).looked_at
    assert "4,096 values of each, none of F8_E4M3" in looked_at


def test_several_tables_are_merged_and_the_first_wins(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "b: &b {dtype: bfloat16}\no: &o {dtype: float32, lr: 1}\nmodel: {<<: [*b, *o], lr: 2}\n"
    )
    assert read_config(tmp_path / "a.yaml").plain["model"] == {"dtype": "bfloat16", "lr": 2}


@pytest.mark.parametrize(
    "scalar", ["!!bool abc", "!!timestamp abc", '!!binary "é"', "!!int abc", "!!float abc"]
)
def test_an_odd_scalar_is_named_and_the_rest_audited(tmp_path, scalar):
    (tmp_path / "odd.yaml").write_text(f"x: {scalar}\n")
    (tmp_path / "train.py").write_text(SCRIPT)
    audited = audit(str(tmp_path))
    assert sorted(rules(audited)) == ["unreadable", "weights-in-bf16"]
    assert any("line 1 holds no" in fault.seen for fault in audited.faults)


def test_names_that_stand_nowhere_are_not_looked_for_again_and_again(tmp_path):
    keys = ",\n".join(f'"\\u0061{number}": 1' for number in range(20_000))
    (tmp_path / "a.json").write_text("{" + keys + "}")
    begun = time.process_time()
    assert len(read_config(tmp_path / "a.json").entries) == 20_000
    assert time.process_time() - begun < 5.0


@pytest.mark.parametrize(
    ("option", "name"),
    [("--html", "train.py"), ("--sarif", "train.py"), ("--sarif", "config.json")],
)
def test_a_page_takes_the_place_of_nothing(tmp_path, capsys, option, name):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "config.json").write_text('{"lr": 1e-4}')
    before = (tmp_path / name).read_bytes()
    with pytest.raises(SystemExit) as end:
        main(["audit", str(tmp_path), option, str(tmp_path / name)])
    assert end.value.code == 2 and (tmp_path / name).read_bytes() == before
    for _ in range(2):  # an earlier page of an audit is written anew
        with pytest.raises(SystemExit) as end:
            main(["audit", str(tmp_path), "--sarif", str(tmp_path / "audit.json")])
        assert end.value.code == 3


def test_a_store_whose_pictures_are_gone_is_an_error(tmp_path, capsys):
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (32, 32), "red").save(tmp_path / "pictures" / "a.png")
    (tmp_path / "pictures" / "a.txt").write_text("a red square on a plain ground")
    with pytest.raises(SystemExit):
        main(
            ["data", "import", str(tmp_path / "pictures"), str(tmp_path / "store"), "--size", "32"]
        )
    assert "samples-broken" not in rules(audit(str(tmp_path / "store")))
    for shard in (tmp_path / "store" / "shards").iterdir():
        shard.unlink()
    (fault,) = (
        one for one in audit(str(tmp_path / "store")).faults if one.rule == "samples-broken"
    )
    assert fault.severity == "error" and "cannot be opened" in fault.seen and "\n" not in fault.seen
