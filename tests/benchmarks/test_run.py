"""The benchmarks run, and their figures are well formed. Nothing here asserts on time."""

import gc
import math
import platform
import subprocess
from pathlib import Path

import pytest
import torch

from benchmarks import bars, contenders, fresh, memory, methods, page, results, run, scaling, timing, workloads
from benchmarks.parts import PARTS
from benchmarks.tables import Column, as_markdown, as_text, cells
from varlearn.methods import METHODS

IN_PROCESS = [name for name in PARTS if name != "memory"]
COLUMNS = (Column("contender", "optimizer"), Column("ms", "ms", ".1f", is_main=True))


def example(**figure: float) -> results.Document:
    rows: list[results.Figure] = [{"case": "c", "contender": "AdamW fused", "ms": 2.0, **figure}]
    return results.document("step", rows, {"cpu": "a", "date": "2026-01-01"}, quick=False)


@pytest.mark.parametrize("name", IN_PROCESS)
def test_each_part_writes_finite_figures_of_every_contender_it_names(name: str, tmp_path: Path) -> None:
    assert run.main(["--only", name, "--quick", "--threads", "1", "--out", str(tmp_path)]) == 0
    found = results.read(tmp_path / f"{name}.json")
    assert found is not None
    assert found["part"] == name
    assert found["quick"] is True
    assert found["environment"]["threads"] == 1
    assert found["environment"]["torch"] == torch.__version__
    keys = {column.key for column in PARTS[name].columns}
    assert keys <= set().union(*found["figures"])
    numbers = [value for figure in found["figures"] for value in figure.values() if not isinstance(value, str)]
    assert all(math.isfinite(number) for number in numbers)
    if name in ("step", "train", "scaling"):
        reference = [figure for figure in found["figures"] if figure["contender"] == contenders.REFERENCE]
        assert reference
        assert all(figure["over_fused"] == 1.0 for figure in reference)
    if name == "step":
        names = [contender.name for contender in contenders.select()]
        assert [figure["contender"] for figure in found["figures"]] == names * 3
        assert {"AdamW fused", "AdamW foreach", "varlearn loop", "varlearn foreach"} <= set(names)


def test_the_environment_has_no_host_name_and_no_path(tmp_path: Path) -> None:
    run.main(["--only", "noise", "--quick", "--threads", "1", "--out", str(tmp_path)])
    written = (tmp_path / "noise.json").read_text()
    assert str(tmp_path) not in written
    assert str(results.REPO) not in written
    assert str(Path.home()) not in written or Path.home() == Path("/")
    assert f'"{platform.node()}"' not in written


# Memory, in processes of its own


def test_memory_is_measured_in_a_fresh_process() -> None:
    vectors = memory.in_fresh_process(contenders.REFERENCE, workloads.GPT_3M.name)
    assert 3.0 < vectors < 6.0  # parameters, gradients and two averages are 4; megabytes of anything else are noise


def test_a_process_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "KeyError: 'no such case'")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(RuntimeError, match="'AdamW fused' on 'x' ended with code 1:\nKeyError"):
        memory.in_fresh_process(contenders.REFERENCE, "x")


@pytest.mark.parametrize("keeps_memory", [False, True])
def test_a_process_has_the_allocator_that_it_is_to_have(keeps_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    environments: list[dict[str, str]] = []

    def note(command: list[str], env: dict[str, str], **options: object) -> subprocess.CompletedProcess[str]:
        environments.append(env)
        return subprocess.CompletedProcess(command, 0, "compiling\n[1, 2]\n", "")

    monkeypatch.setattr(subprocess, "run", note)
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    assert fresh.measured("step", "case", keeps_memory=keeps_memory) == [1, 2]
    found = {name: value for name, value in environments[0].items() if name.startswith("MALLOC_")}
    assert found == (fresh.KEEPING if keeps_memory else {})


def test_pooled_rounds_keep_their_partners() -> None:
    pooled = timing.Timings.pooled([{"a": [1.0, 2.0], "b": [2.0, 4.0]}, {"a": [3.0], "b": [9.0]}])
    assert pooled.rounds == 3
    assert pooled.quartiles("b", "a") == (2.0, 2.5)


def test_the_peak_is_at_least_what_is_held() -> None:
    held = torch.ones(1 << 22)
    assert memory.status_bytes("VmHWM") >= memory.status_bytes("VmRSS") > 4 * held.numel()


# Turn-taking


def test_every_contender_has_one_turn_per_round() -> None:
    calls: list[str] = []
    turns = {name: lambda name=name: calls.append(name) for name in "abc"}
    timings = timing.take_turns(turns, timing.Budget(rounds=5, seconds=60.0, warmup=0, repeat=2))
    assert timings.rounds == 5
    rounds = [calls[start : start + 6] for start in range(0, len(calls), 6)]
    assert len(rounds) == 5
    assert all(sorted(order) == list("aabbcc") for order in rounds)
    assert len({tuple(order) for order in rounds}) > 1


def test_the_time_limit_leaves_the_least_number_of_rounds() -> None:
    timings = timing.take_turns({"a": lambda: None}, timing.Budget(rounds=50, seconds=0.0, least=4))
    assert timings.rounds == 4


def test_ratios_are_taken_within_rounds() -> None:
    # The machine is ten times slower in the second round; the ratio of medians would be 11.
    timings = timing.Timings({"own": [2.0, 20.0, 22.0], "other": [1.0, 10.0, 2.0]})
    assert timings.ratio("own", "other") == 2.0
    assert timings.quartiles("own", "other") == (2.0, 6.5)
    assert timings.least_ms("own") == 2000.0
    assert timings.median_ms("other") == 2000.0


def test_turns_are_timed_by_the_clock_that_is_given() -> None:
    clock = iter([0.0, 3.0, 10.0, 14.0]).__next__
    timings = timing.take_turns({"a": lambda: None}, timing.Budget(rounds=2, seconds=60.0, warmup=0), clock)
    assert timings.seconds == {"a": [3.0, 4.0]}


def test_garbage_collection_is_on_again_after_an_exception() -> None:
    def fail() -> None:
        if not gc.isenabled():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        timing.take_turns({"a": fail}, timing.Budget(rounds=1, seconds=1.0))
    assert gc.isenabled()


# What is worked on


def test_workloads_have_the_sizes_that_their_names_say() -> None:
    assert workloads.GPT_37M.count == pytest.approx(37e6, rel=0.02)
    assert workloads.MANY.count == pytest.approx(27e6, rel=0.01)
    assert len(workloads.MANY.shapes) == 7800
    assert len(workloads.RESNET20.shapes) == 78
    for work in workloads.BY_SIZE:
        assert work.count == pytest.approx(1e6 * float(work.name.rstrip("M")), rel=0.05)


def test_a_contender_that_would_not_fit_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    huge = workloads.Tensors("1000T", ((10**15,),))
    reference, own = contenders.select(contenders.REFERENCE, "varlearn foreach")
    assert not scaling._fits(huge, reference, own)
    assert "left out: varlearn foreach at 1000T" in capsys.readouterr().out
    assert scaling._fits(workloads.GPT_SMALL, reference, own)


def test_an_unknown_contender_is_refused() -> None:
    with pytest.raises(ValueError, match="Adam"):
        contenders.select("Adam")


def test_a_fused_path_that_cannot_be_compiled_is_left_out_and_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders.native_engine, "available", lambda: False)
    assert not any(contender.name.startswith("varlearn fused") for contender in contenders.select())
    assert "compiler" in contenders.left_out()["varlearn fused"]


# Results


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2 must be 1"),
        ({"extra": 1}, "keys"),
        ({"figures": []}, "no figures"),
        ({"figures": [{"case": "c", "ms": 1.0}]}, "name a case and a contender"),
        ({"figures": [{"case": "c", "contender": "a"}] * 2}, "once"),
        ({"figures": [{"case": "c", "contender": "a", "ms": math.nan}]}, "ms=nan .* must be finite"),
    ],
)
def test_a_malformed_document_is_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        results.write(tmp_path, example() | change)
    assert list(tmp_path.iterdir()) == []


def test_a_document_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = example()
    assert results.read(results.write(tmp_path, made)) == made
    assert [path.name for path in tmp_path.iterdir()] == ["step.json"]
    assert results.read(tmp_path / "train.json") is None


def test_changes_name_the_row_the_column_and_both_numbers() -> None:
    assert results.changes(example(), example(ms=3.0), COLUMNS) == ["c, AdamW fused, ms: 2.0 -> 3.0 (+50%)"]
    other = example()
    other["figures"][0]["case"] = "d"
    assert results.changes(example(), other, COLUMNS) == []


def test_other_conditions_are_named() -> None:
    other = example()
    other["environment"] = {"cpu": "b", "date": "2026-02-02"}
    assert results.other_conditions(example(), other) == ["cpu: a -> b"]


def test_a_run_is_compared_with_the_committed_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--only", "noise", "--quick", "--threads", "1", "--out", str(tmp_path)]
    monkeypatch.setattr(results, "committed", lambda part: None)
    run.main(arguments)
    assert "no committed figures" in capsys.readouterr().out
    committed = results.read(tmp_path / "noise.json")
    monkeypatch.setattr(results, "committed", lambda part: committed)
    run.main(arguments)
    printed = capsys.readouterr().out
    assert "-> now" in printed
    assert "4,096 numbers, torch normal_, ns, median: " in printed


def test_committed_figures_are_those_of_the_last_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    monkeypatch.setattr(results, "REPO", tmp_path)
    monkeypatch.setattr(results, "FOLDER", tmp_path / "benchmarks" / "results")
    assert results.committed("step") is None
    results.write(results.FOLDER, example(ms=7.0))
    assert results.committed("step") == example(ms=7.0)  # no git here yet: what is on disk
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "figures")
    results.write(results.FOLDER, example(ms=8.0))
    assert results.committed("step") == example(ms=7.0)


# The command


def test_a_part_that_fails_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(quick: bool) -> list[results.Figure]:
        raise RuntimeError("no such instruction")

    monkeypatch.setitem(PARTS, "step", PARTS["step"]._replace(measure=fail))
    assert run.main(["--only", "step,noise", "--quick", "--threads", "1", "--out", str(tmp_path)]) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["noise.json"]
    printed = capsys.readouterr()
    assert "no such instruction" in printed.err
    assert "not measured, see above: step" in printed.err


def test_an_interrupt_keeps_the_finished_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(quick: bool) -> list[results.Figure]:
        raise KeyboardInterrupt

    monkeypatch.setitem(PARTS, "step", PARTS["step"]._replace(measure=interrupt))
    assert run.main(["--only", "noise,step", "--quick", "--threads", "1", "--out", str(tmp_path)]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["noise.json"]
    assert "kept: noise" in capsys.readouterr().out


def test_a_quick_run_stays_away_from_the_committed_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "QUICK_FOLDER", tmp_path)
    before = {path: path.read_bytes() for path in results.FOLDER.glob("*.json")}
    text = page.PAGE.read_text(encoding="utf-8")
    assert run.main(["--only", "noise", "--quick", "--threads", "1"]) == 0
    assert (tmp_path / "noise.json").exists()
    assert {path: path.read_bytes() for path in results.FOLDER.glob("*.json")} == before
    assert page.PAGE.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("arguments", [["--only", "stepp"], ["--threads", "0"]])
def test_a_wrong_command_line_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(arguments)
    assert "must be" in capsys.readouterr().err


# Tables, bars and the page


def test_tables_align_and_leave_out_columns_without_figures() -> None:
    grid = cells([{"contender": "a", "ms": 1.25}, {"contender": "long"}], (*COLUMNS, Column("gone", "gone")))
    assert grid == [["optimizer", "ms"], ["a", "1.2"], ["long", "–"]]
    assert as_text(grid) == "optimizer   ms\na          1.2\nlong         –"
    assert as_markdown(grid) == "| optimizer | ms |\n| --- | ---: |\n| a | 1.2 |\n| long | – |"


@pytest.mark.parametrize(("value", "verdict"), [(1.5, "goal"), (1.501, "bar"), (2.1, "bar"), (2.101, "missed")])
def test_verdicts_follow_bar_and_goal(value: float, verdict: str) -> None:
    bar = bars.BARS[0]
    rows: list[results.Figure] = [{"case": bar.case, "contender": bar.contender, bar.column: value}]
    grid = bars.verdicts({bar.part: results.document(bar.part, rows, {}, quick=False)})
    assert [row[-1] for row in grid[1:]] == [verdict]


def test_bars_name_parts_and_columns_that_exist() -> None:
    of_methods = {"vectorized", methods.LOOP, "collection", "fit", *METHODS, *(f"{name}: predict" for name in METHODS)}
    of_methods |= {methods.MORE_CLASSES, *(methods.SENSITIVITIES.format(classes) for classes in methods.CLASSES)}
    for bar in bars.BARS:
        assert bar.column in {column.key for column in PARTS[bar.part].columns}
        known = {contender.name for contender in contenders.ALL} | {"predict", "block", "hessian", *of_methods}
        assert bar.contender in known
        assert bar.goal <= bar.bar


def test_the_page_shows_the_figures_on_disk() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.fill(text, page.load()) == text


def test_the_page_has_a_place_for_every_part() -> None:
    marks = [match[1] for match in page._MARKED.findall(page.PAGE.read_text(encoding="utf-8"))]
    assert sorted(marks) == sorted(["bars", *PARTS])


def test_only_what_is_marked_is_filled_in(tmp_path: Path) -> None:
    measured = example(over_fused=1.5)
    measured["environment"] = dict.fromkeys(
        ("cpu", "instructions", "threads", "cores", "memory_gib", "torch", "ivon_opt", "compiler", "date", "command"),
        "x",
    ) | {"load_average": 0.5}
    around = "before\n<!-- bench:step -->\nold\n<!-- /bench -->\nafter\n<!-- bench:train -->\nold\n<!-- /bench -->\n"
    filled = page.fill(around, {"step": measured})
    assert filled.startswith("before\n<!-- bench:step -->\n**c**\n\n| optimizer | x AdamW fused |")
    assert "| AdamW fused | 1.50 |" in filled
    assert "load 0.5 at the start" in filled
    assert "<!-- /bench -->\nafter\n<!-- bench:train -->\n*Not measured yet" in filled
    assert "old" not in filled
    assert page.fill(filled, {"step": measured}) == filled


def test_an_unknown_mark_is_refused() -> None:
    with pytest.raises(ValueError, match="bench:gone"):
        page.fill("<!-- bench:gone -->\n<!-- /bench -->", {})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of matplotlib's own dependencies, while they are imported
def test_the_plot_has_a_line_per_contender_and_is_reproducible(tmp_path: Path) -> None:
    rows: list[results.Figure] = [
        {"case": case, "contender": name, "parameters": size, "ns_per_parameter": 1.0}
        for case, size in (("1M", 10**6), ("10M", 10**7))
        for name in ("AdamW fused", "varlearn fused")
    ]
    document = results.document("scaling", rows, {}, quick=False)
    page.plot(document, tmp_path / "a.svg")
    page.plot(document, tmp_path / "b.svg")
    drawn = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert drawn == (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert "<svg" in drawn
    assert "AdamW fused" in drawn


def test_committed_figures_are_well_formed() -> None:
    for part, found in page.load().items():
        assert found["part"] == part
        assert found["quick"] is False
