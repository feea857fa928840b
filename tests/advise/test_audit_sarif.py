"""SARIF: the structure that 2.1.0 asks for, files and lines where they are known, names where they
are not."""

import json
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlparse
from urllib.request import url2pathname

import pytest

from fulcrum.advice import audit_output as audit_sarif
from fulcrum.advice.audit import audit
from fulcrum.advice.audit_output import help_uri, sarif
from fulcrum.advice.rules import RULES
from fulcrum.cli import main

SCRIPT = """import torch
from model import Net

model = Net().to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
"""
LEVELS = {"none", "note", "warning", "error"}


def require_sarif(log):
    """What the schema of SARIF 2.1.0 requires of the parts that are used here."""
    assert log["version"] == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json")
    assert set(log) == {"$schema", "version", "runs"} and len(log["runs"]) == 1
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] and driver["version"]
    names = [rule["id"] for rule in driver["rules"]]
    assert len(set(names)) == len(names)
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"]
        assert rule["id"] == "unreadable" or rule["helpUri"].endswith(f"#{rule['id']}")
        assert all(rule[part]["text"] for part in ("fullDescription", "help") if part in rule)
        assert rule.get("defaultConfiguration", {"level": "none"})["level"] in LEVELS
    for result in run["results"]:
        assert result["message"]["text"] and result["level"] in LEVELS
        assert names[result["ruleIndex"]] == result["ruleId"]
        assert 0.0 <= result.get("rank", 0.0) <= 100.0
        for location in result["locations"]:
            assert location.keys() <= {"physicalLocation", "logicalLocations"} and location
            if "physicalLocation" in location:
                place = location["physicalLocation"]
                assert (
                    place["artifactLocation"]["uri"] and " " not in place["artifactLocation"]["uri"]
                )
                assert place.get("region", {"startLine": 1})["startLine"] >= 1
            assert all(one["fullyQualifiedName"] for one in location.get("logicalLocations", ()))
        for one in result.get("suppressions", ()):
            assert one["kind"] in ("inSource", "external") and one["justification"]
    return run["results"]


def test_every_rule_has_its_place_in_the_docs(monkeypatch):
    for rule in RULES:
        page, _, anchor = help_uri(rule.id)["helpUri"].partition("#")
        path = Path(url2pathname(urlparse(page).path))
        assert page.startswith("file:///") and path.is_file() and anchor == rule.id
        assert path.read_text(encoding="utf-8").count(f'<a id="{anchor}"></a>') == 1
    monkeypatch.setattr(
        audit_sarif,
        "metadata",
        lambda _: SimpleNamespace(get_all=lambda _: ["Documentation, https://d/x/"]),
    )
    assert help_uri("metric-range") == {"helpUri": "https://d/x/audit.html#metric-range"}
    monkeypatch.setattr(audit_sarif, "metadata", lambda _: SimpleNamespace(get_all=lambda _: None))
    monkeypatch.setattr(audit_sarif, "PAGE", Path("/nowhere/audit.md"))
    assert help_uri("metric-range") == {}, "an address that leads nowhere is none"


def test_a_fault_of_a_script_has_its_file_and_line(tmp_path):
    (tmp_path / "my train.py").write_text(SCRIPT)
    (result,) = require_sarif(sarif(audit(str(tmp_path / "my train.py"))))
    place = result["locations"][0]["physicalLocation"]
    assert (
        result["ruleId"] == "weights-in-bf16"
        and result["level"] == "error"
        and place["region"] == {"startLine": 4}
    )
    assert place["artifactLocation"]["uri"].startswith("file:///") and place["artifactLocation"][
        "uri"
    ].endswith("my%20train.py")


def test_places_of_a_project_lie_below_it(tmp_path, monkeypatch):
    (tmp_path / "code/deep").mkdir(parents=True)
    (tmp_path / "code/deep/train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    (result,) = require_sarif(sarif(audit("code")))
    assert (
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        == "code/deep/train.py"
    )


def test_a_slot_of_a_run_is_named(tmp_path):
    results = require_sarif(sarif(audit("spark + bf16_storage")))
    assert [
        one["fullyQualifiedName"] for one in results[0]["locations"][0]["logicalLocations"]
    ] == ["precision.storage"]


def test_the_order_of_the_stack_is_the_rank():
    results = require_sarif(sarif(audit("spark + bf16_storage + short_captions")))
    ranks = [one["rank"] for one in results]
    assert len(ranks) > 1 and ranks == sorted(ranks, reverse=True)


def test_what_a_comment_answers_is_suppressed_with_its_reason(tmp_path):
    (tmp_path / "a.py").write_text(
        SCRIPT.replace("16)\n", "16)  # fulcrum: ignore[weights-in-bf16] frozen\n", 1)
    )
    (result,) = require_sarif(sarif(audit(str(tmp_path / "a.py"))))
    assert result["suppressions"] == [{"kind": "inSource", "justification": "frozen"}]


def test_what_cannot_be_read_and_a_clean_target_are_valid_too(tmp_path):
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "fine.py").write_text("import torch\n")
    assert {one["ruleId"] for one in require_sarif(sarif(audit(str(tmp_path))))} == {"unreadable"}
    assert require_sarif(sarif(audit("spark"))) == []


def test_the_command_writes_it(tmp_path, capsys):
    (tmp_path / "a.py").write_text(SCRIPT)
    with pytest.raises(SystemExit) as end:
        main(["audit", str(tmp_path / "a.py"), "--sarif", str(tmp_path / "a.sarif")])
    assert end.value.code == 3, "faults still end with the code for CI"
    assert len(require_sarif(json.loads((tmp_path / "a.sarif").read_text()))) == 1
