"""Harnesses that are made up: what can be built and called, what their text does when it runs, what is contained."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from deinplace.analysis.source import Source
from deinplace.rules import sites
from deinplace.verify.broad import lines_that_wrote
from deinplace.verify.drivers import Driver, Laboratory, Settings
from deinplace.verify.harness.attempts import Attempt, grouped, harness, written
from deinplace.verify.harness.model import Harness
from deinplace.verify.harness.synthesise import constructions, harnesses, items, search, ways

FIXTURES = Path(__file__).parents[2] / "fixtures" / "synthesis"
Found = dict[str, Attempt]


def sources_of(paths: Iterable[Path]) -> dict[str, Source]:
    return {str(p): Source.parse(str(p), p.read_bytes()) for p in paths}


def attempts(folder: Path, sources: dict[str, Source], seconds: float) -> Found:
    wanted = dict.fromkeys((s.path, s.function) for source in sources.values() for s in sites(source))
    found = search(sources, items(sources, wanted), str(folder), sys.executable, seconds)
    return {a.item.name: a for a in found}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(FIXTURES, folder, dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def found(project: Path) -> Found:
    return attempts(
        project, sources_of([project / "kit" / "nets.py", project / "kit" / "options.py", project / "train.py"]), 20.0
    )


def text_of(attempt: Attempt) -> str:
    return harness([attempt]).text


KINDS = ["Attention", "Flat", "Pyramid", "Words", "Signal", "Bottleneck", "Faulty", "Stair", "Block"]


@pytest.mark.parametrize("name", [*KINDS, "box_area", "drop", "Net"])
def test_every_line_in_question_runs_forward_and_backward(found: Found, name: str) -> None:
    attempt = found[name]
    assert attempt.complete, attempt.reason
    assert attempt.forward and attempt.backward


def test_a_fault_of_the_users_is_no_failure_of_the_search(found: Found) -> None:
    assert found["Faulty"].faults == ("version",)
    assert not any(found[name].faults for name in ("Attention", "Pyramid", "Words", "box_area"))


def test_options_and_modes_are_tried_for_lines_that_need_them(found: Found) -> None:
    assert "mask=" in text_of(found["Attention"])
    assert ".eval()" in text_of(found["Pyramid"])
    assert "model.smooth(" in text_of(found["Words"])
    assert "training=True" in text_of(found["drop"])


def test_options_that_a_line_hangs_on_are_tried_together(found: Found) -> None:
    assert found["Guarded"].complete, found["Guarded"].reason
    assert "bias=True, apart=True" in text_of(found["Guarded"])
    assert found["Spoken"].complete and "way='sliced'" in text_of(found["Spoken"])


def test_dropout_that_is_off_by_default_is_on_once(found: Found) -> None:
    assert found["Dropped"].faults == ("version",)
    assert "attn_drop=0.5" in text_of(found["Dropped"])


def test_inputs_that_may_not_want_gradients_want_none(found: Found) -> None:
    assert found["rounded"].complete and not found["rounded"].faults
    assert "image = torch.randn(" in text_of(found["rounded"]) and "requires_grad" not in text_of(found["rounded"])


def test_an_optimizer_takes_steps_and_reaches_what_it_calls(found: Found) -> None:
    assert found["_slow_step"].complete, found["_slow_step"].reason
    text = text_of(found["_slow_step"])
    assert "optimizer.step()" in text and "momentum=0.5" in text


def test_what_is_written_while_an_object_is_built_needs_no_call(found: Found) -> None:
    assert found["Started"].complete and set(found["Started"].faults) == {"leaf"}
    assert "uniform=True" in text_of(found["Started"])


def test_a_helper_is_reached_through_a_function_that_calls_it(found: Found) -> None:
    assert found["_blended"].complete, found["_blended"].reason
    assert "blend(image)" in text_of(found["_blended"])


def test_what_hangs_on_chance_hangs_on_a_seed(found: Found) -> None:
    assert found["shaken"].complete, "one seed goes one way, another the other"
    text = text_of(found["shaken"])
    assert "import random\n" in text and "    random.seed(0)\n" in text and "    random.seed(1)\n" in text


def test_scenes_that_run_none_of_the_lines_make_no_harness(found: Found) -> None:
    started = found["Started"]
    assert len(started.scenes) > len(started.faulty) > 0, "its call without options reaches no write"
    assert all("uniform=True" in h.text for h in written([started]))


def test_a_module_that_is_passed_has_what_is_read_of_it(found: Found) -> None:
    assert found["Around"].complete, found["Around"].reason
    assert "net=Network(width=32, depth=2)" in text_of(found["Around"])


@pytest.mark.parametrize("name", ["Part", "_shifted"])
def test_what_cannot_be_called_alone_is_reached_through_what_uses_it(found: Found, name: str) -> None:
    assert found[name].complete, found[name].reason
    assert "model = Whole()" in text_of(found[name])


def test_a_whole_model_carries_what_cannot_be_built_alone(found: Found) -> None:
    assert "tiny_model()" in text_of(found["Block"])


def test_what_a_call_says_about_the_constructor_is_heard(found: Found) -> None:
    built = re.search(r"Bottleneck\(inplanes=(\d+), planes=(\d+)\)", text_of(found["Bottleneck"]))
    assert built is not None
    assert int(built[1]) == 4 * int(built[2])


def test_a_file_that_trains_when_imported_is_loaded_in_parts(found: Found) -> None:
    assert "definitions('train', 'train.py')" in text_of(found["Net"])
    assert not found["Attention"].scenes[0].sliced


def test_one_text_for_all_calls_runs_as_a_program_and_as_a_test(found: Found, project: Path) -> None:
    calm = [a for a in found.values() if not a.faults and a.item.name != "Net"]
    (group,) = grouped(calm)
    text = harness(group).text
    compile(text, "harness", "exec")
    (project / "test_kit.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_kit.py"],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    (project / "test_kit.py").unlink()
    assert done.returncode == 0, done.stdout
    assert text.count("def test_") == text.count("    test_")


def test_sliced_files_can_be_overlaid_and_recorded(found: Found, project: Path) -> None:
    path = project / "train.py"
    patched = path.read_bytes().replace(b"x += 1", b"x = x + 1")
    (project / "harness_text.py").write_text(text_of(found["Net"]))
    driver = Driver((sys.executable, "harness_text.py"), str(project), timeout=60)
    settings = Settings(overlay={str(path): patched}, sites=True, watch=True)
    with Laboratory() as lab:
        before = lab.run(driver, Settings(sites=True, watch=True))
        after = lab.run(driver, settings)
    (project / "harness_text.py").unlink()
    assert before.exit_code == after.exit_code == 0, after.stderr
    line = path.read_text().splitlines().index("        x += 1") + 1
    assert (str(path), line) in lines_that_wrote(before)
    assert (str(path), line) not in lines_that_wrote(after)


@pytest.fixture(scope="module")
def hostile(project: Path) -> Found:
    return attempts(project, sources_of([project / "hostile.py"]), 1.0)


@pytest.mark.parametrize("name", ["Sleeps", "Eats", "Leaves", "Writes", "Calls", "Asks"])
def test_hostile_code_is_contained_and_the_reason_told(hostile: Found, project: Path, name: str) -> None:
    assert not hostile[name].scenes
    assert hostile[name].reason
    assert not (project / "written.txt").exists()
    assert not (project / "called.txt").exists()


def test_what_comes_after_hostile_code_is_still_served(hostile: Found) -> None:
    assert hostile["Fine"].complete
    assert "too long" in hostile["Sleeps"].reason
    assert "not written" in hostile["Writes"].reason
    assert "not allowed" in hostile["Asks"].reason


def test_a_file_that_cannot_be_imported_is_a_miss_with_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import torch\nimport no_such_module\n\n\ndef f(x):\n    x += torch.ones(2)\n    return x\n")
    made, misses = harnesses(sources_of([path]), [(str(path), "f")], str(tmp_path), sys.executable, 2.0)
    assert made == []
    assert "no_such_module" in misses[0].reason
    assert isinstance(misses[0].harness, Harness) and misses[0].harness.title == "broken.py: f"


def test_an_interpreter_without_torch_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("def f(x):\n    x += 1\n    return x\n")
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E -I "$@"\n')
    bare.chmod(0o755)
    _, misses = harnesses(sources_of([path]), [(str(path), "f")], str(tmp_path), str(bare), 2.0)
    assert "torch" in misses[0].reason


def test_ways_to_import_start_at_the_outermost_package(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for folder in ("a", "a/b"):
        (tmp_path / folder / "__init__.py").touch()
    path = tmp_path / "a" / "b" / "c.py"
    assert next(ways(str(path), str(tmp_path), False)) == (str(tmp_path), "a.b.c", False)
    assert next(ways(str(path), str(tmp_path), True)) == (str(tmp_path), "a.b.c", False)
    plain = tmp_path / "models" / "net.py"
    assert list(ways(str(plain), str(tmp_path), True))[:2] == [
        (str(tmp_path / "models"), "net", True),
        (str(tmp_path), "models.net", True),
    ]


def test_only_constructions_with_literal_arguments_are_copied() -> None:
    source = Source.parse("a.py", b"UNet(3, out=2)\nm.UNet(n)\nUNet(*a)\nunet(3)\nUNet(3, out=2)\nUNet()\n")
    assert constructions([source]) == {"UNet": ("UNet(3, out=2)",)}
