"""Which of the images that were built here are listed; those of no use are removed, what is on others first."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from assay.cluster import owner
from assay.cluster.docker import built_images, image, image_usage, layer, tools
from assay.cluster.docker.layer import ImageError
from assay.harness.cli.main import main

DOCKER = r"""#!/usr/bin/env python3
import json, pathlib, sys
state = pathlib.Path(__file__).with_name("images.json")
images = json.loads(state.read_text())
words = sys.argv[2:]
if words[0] == "ls":
    for one in images:
        print(json.dumps({"ID": one["id"], "Repository": one["name"].partition(":")[0], "Size": "1MB",
                          "Tag": one["name"].partition(":")[2], "CreatedSince": "now"}))
elif words[0] == "inspect":
    named = [one for word in words for one in images if word in (one["id"], one["name"])]
    for one in named:
        print(json.dumps(one["labels"]) if "Labels" in words[-1] else one["id"])
    sys.exit(not named)
else:
    (gone,) = (one for one in images if words[1] in (one["name"], one["id"][7:19]))
    if gone.get("runs") or any(one.get("on") == gone["id"] for one in images):
        sys.exit("conflict: it is in use")
    state.write_text(json.dumps([one for one in images if one is not gone]))
"""


def digest(number: int) -> str:
    return f"sha256:{number:02}{'0' * 62}"


def made(
    name: str, number: int, labels: dict[str, str], on: int | None = None, *, runs: bool = False
) -> dict[str, object]:
    return {"name": name, "id": digest(number), "labels": labels, "on": on and digest(on), "runs": runs}


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "images.json"


def on_own(name: str, number: int, recipe: str = "") -> dict[str, str]:
    labels = {
        "assay": "software",
        tools.NODE_IMAGE_LABEL: image.image_reference(),
        tools.RECIPE_LABEL: recipe or tools.recipe_hash(),
    }
    return {**labels, tools.USER_IMAGE_LABEL: name, tools.USER_IMAGE_ID_LABEL: digest(number)}


def test_what_is_of_use_stays_and_the_users_own_are_not_listed(images: Path, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").touch()
    here, gone = ({"assay": "assay-own", "assay.dockerfile": str(tmp_path / name)} for name in ("Dockerfile", "No"))
    rows = [
        made(layer.LAYER_IMAGE, 1, {"assay": "layer"}),
        made(image.image_reference(), 2, {"assay": "node-image"}, on=1),
        made("assay-node:old", 3, {"assay": "node-image"}, on=1),
        made("theirs:7", 4, {"assay": "node-image"}, on=2),
        made("assay-software:1", 5, on_own("theirs:7", 4)),
        made("assay-software:2", 6, on_own("theirs:7", 44)),
        made("assay-software:3", 7, on_own("theirs:7", 4, recipe="another")),
        made("assay-software:4", 8, on_own("removed:1", 4)),
        made("assay-software:5", 9, {"assay": "software", tools.NODE_IMAGE_LABEL: image.image_reference()}, on=2),
        made("assay-software:6", 10, {"assay": "software", tools.NODE_IMAGE_LABEL: "assay-node:old"}, on=3),
        made("assay-own:1", 11, here),
        made("assay-own:2", 12, gone),
        made("assay-own:1-replaced-120000000000", 13, here),
        made("<none>:<none>", 14, {"assay": "node-image"}),
        made("<none>:<none>", 15, on_own("theirs:7", 4)),  # a user's, built on assay-software:1
        made("<none>:<none>", 16, here),
    ]
    images.write_text(json.dumps(rows))
    found = {one.name: one for one in built_images.list_images()}
    used = {"assay-software:1", "assay-software:5", "assay-own:1", layer.LAYER_IMAGE, image.image_reference()}
    assert {name for name, one in found.items() if one.used} == used
    of_no_use = {"assay-node:old", *(f"assay-software:{n}" for n in (2, 3, 4, 6)), "assay-own:2"}
    of_no_use |= {"assay-own:1-replaced-120000000000"}
    assert set(found) - used == of_no_use
    assert found["assay-software:1"].source == "theirs:7"
    assert found["assay-own:1"].source == str(tmp_path / "Dockerfile")

    image_usage.note_usage("redis", {"server": (digest(5), digest(4))})
    image_usage.note_usage("old", {"server": (digest(3),)})
    assert set(built_images.prune()) == of_no_use
    assert set(image_usage.read_usage()) == {digest(5), digest(4)}, "what is gone is forgotten"
    assert {one["name"] for one in json.loads(images.read_text())} == used | {"theirs:7", "<none>:<none>"}


def test_an_image_of_another_machines_dockerfile_stays(images: Path, tmp_path: Path) -> None:
    """Machines share an engine, and only one of them has the Dockerfile."""
    here = owner.find_machine_label(tmp_path / "state" / "assay")
    gone = {"assay": "assay-own", "assay.dockerfile": str(tmp_path / "No")}
    rows = [
        made("assay-own:1", 11, gone | {tools.MACHINE_LABEL: here}),
        made("assay-own:2", 12, gone | {tools.MACHINE_LABEL: "0123456789abcdef"}),
    ]
    images.write_text(json.dumps(rows))
    assert list(built_images.prune()) == ["assay-own:1"]


def test_that_nothing_can_be_noted_is_said_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for problem in (image_usage.note_usage("redis", {"server": (digest(5),)}), image_usage.forget_others([])):
        assert (problem or "").startswith("which systems run which images is not noted: ")
    assert image_usage.read_usage() == {}


def test_each_says_for_which_systems_and_roles_it_is(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        made(layer.LAYER_IMAGE, 1, {"assay": "layer"}),
        made(image.image_reference(), 2, {"assay": "node-image"}, on=1),
        made("assay-software:1", 5, on_own("theirs:7", 4)),
        made("assay-software:5", 9, {"assay": "software", tools.NODE_IMAGE_LABEL: image.image_reference()}, on=2),
    ]
    images.write_text(json.dumps(rows))
    image_usage.note_usage("redis", {"server": (digest(5),), "sentinel": (digest(5), digest(2))})
    image_usage.note_usage("etcd", {"server": (digest(5),)})
    main(["image", "list"])
    lines = {line[2:].split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["assay-software:1"].endswith(" etcd (server), redis (sentinel, server), on theirs:7")
    assert lines[image.image_reference()].endswith(" redis (sentinel)")
    assert lines["assay-software:5"].endswith(f" {built_images.UNKNOWN}")
    assert lines[layer.LAYER_IMAGE].endswith(" base of all other images")


def test_of_many_systems_some_are_named_and_a_damaged_note_is_none(tmp_path: Path, images: Path) -> None:
    assert image_usage.describe_usage({name: ("s",) for name in "dcab"}) == "a (s), b (s), c (s) and 1 more"
    (tmp_path / "state" / "assay").mkdir(parents=True)
    for damaged in ("{", "[]", '{"x": 1}', '{"x": {"y": 2}}'):
        (tmp_path / "state" / "assay" / "images.json").write_text(damaged)
        assert image_usage.read_usage() == {}
    image_usage.note_usage("redis", {"server": (digest(5),)})
    assert image_usage.read_usage() == {digest(5): {"redis": {"server"}}}


def test_one_that_cannot_be_removed_is_an_error_with_the_engines_reason(images: Path) -> None:
    images.write_text(json.dumps([made("assay-node:old", 3, {"assay": "node-image"}, runs=True)]))
    with pytest.raises(ImageError, match=r"(?s)image rm assay-node:old.*it is in use"):
        list(built_images.prune())
