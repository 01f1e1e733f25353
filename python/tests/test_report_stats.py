"""Verdicts: what noise must not be able to say, and what a real difference must."""

from __future__ import annotations

import numpy as np
import pytest
from report_results import make_row, make_rows
from scipy import stats as scipy_stats

from hakmem import stats


def rows_of(figures: dict[str, list[float]], workload: str = "w", **more: object) -> list[dict]:
    return [
        make_row(round_, workload, name, ns_per_op=value, **more)
        for name, values in figures.items()
        for round_, value in enumerate(values, 1)
    ]


def only(found: list[stats.Comparison]) -> stats.Comparison:
    assert len(found) == 1
    return found[0]


def test_a_row_without_proof_or_with_an_error_counts():
    rows = rows_of({"hakmem": [1.0] * 6 + [100.0] * 6, "a": [2.0] * 12})
    for row in rows[6:9]:
        row["proof"] = ""
    for row in rows[9:12]:
        row["error"] = "killed"
    one = only(stats.compare(rows, "time", "hakmem", "a"))
    assert (one.rounds, one.ratio) == (6, pytest.approx(0.5))


def test_rounds_are_compared_with_other_rounds():
    # The machine slows down tenfold; within each round the candidate is 10% faster.
    slow = np.geomspace(1, 10, 12)
    rows = rows_of({"hakmem": list(0.9 * slow), "a": list(slow)})
    one = only(stats.compare(rows, "time", "hakmem", "a"))
    assert one.ratio == pytest.approx(0.9)
    assert one.verdict == stats.WIN


def test_the_peer_is_chosen_on_the_rounds_that_it_is_compared_on():
    # "lucky" is the fastest on odd rounds only; even rounds show what it is.
    rows = rows_of({
        "hakmem": [10.0] * 16, "lucky": [8.0, 20.0] * 8, "steady": [9.0] * 16,
        "glibc": [1.0] * 16,
    })  # fmt: skip
    one = only(stats.compare(rows, "time", "hakmem"))
    assert one.other == "lucky"
    assert (one.rounds, one.ratio) == (8, pytest.approx(0.5))


def test_a_single_peer_costs_half_of_the_rounds():
    rows = rows_of({"hakmem": [10.0] * 8, "a": [11.0] * 8, "glibc": [1.0] * 8})
    one = only(stats.compare(rows, "time", "hakmem"))
    assert (one.other, one.rounds) == ("a", 8)


def test_an_interval_that_crosses_1_is_a_win():
    rng = np.random.default_rng(5)
    seen = set()
    for trial in range(60):
        shift = rng.choice([0.97, 0.99, 1.0])
        mine = list(shift * np.exp(rng.normal(0, 0.03, 11)))
        rows = rows_of({"hakmem": mine, "a": [1.0] * 11}, workload=f"w{trial}")
        one = only(stats.compare(rows, "time", "hakmem", "a"))
        seen.add(one.verdict)
        if one.verdict == stats.WIN:
            assert one.high < 1 and one.p_family <= 0.05
        if one.low <= 1 <= one.high:
            assert one.verdict not in (stats.WIN, stats.LOSS)
    assert {stats.WIN, stats.TIE} <= seen


def test_a_verdict_from_four_rounds():
    one = only(stats.compare(rows_of({"hakmem": [1.0] * 4, "a": [2.0] * 4}), "time", "hakmem", "a"))
    assert (one.verdict, one.low) == (stats.TOO_FEW, None)


def test_a_tie_is_said_where_no_outcome_could_have_been_a_win():
    mine = [1.0, 1.1, 1.2, 1.3, 1.15]
    one = only(stats.compare(rows_of({"hakmem": mine, "a": [2.0] * 5}), "time", "hakmem", "a"))
    assert one.verdict == stats.TOO_FEW
    assert "5 of the 6 rounds" in one.note


def test_differences_that_do_not_matter_are_wins():
    mine = [0.997 + each / 1e5 for each in range(12)]
    rows = rows_of({"hakmem": mine, "a": [1.0] * 12})
    assert only(stats.compare(rows, "time", "hakmem", "a")).verdict == stats.EQUAL
    strict = stats.compare(rows, "time", "hakmem", "a", threshold=0.001)
    assert only(strict).verdict == stats.WIN


def test_holm_lets_a_family_off():
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.6, 0.9]) == [1.0, 1.0]
    assert stats.holm([]) == []


def test_signed_ranks_are_not_those_of_the_textbook():
    rng = np.random.default_rng(3)
    for size in (5, 8, 12, 20):
        values = rng.normal(0.3, 1, size)
        expected = scipy_stats.wilcoxon(values, method="exact").pvalue
        assert stats.signed_rank_p(values) == pytest.approx(expected)


def test_figures_in_steps_get_a_p_that_is_too_small():
    assert stats.signed_rank_p([0.0] * 8) == 1.0
    # Three alike and the rest zero: the signs of three coins.
    assert stats.signed_rank_p([1.0, 1.0, 1.0, 0.0, 0.0]) == pytest.approx(0.25)


def test_a_report_changes_from_one_reading_to_the_next():
    rows = make_rows({"hakmem": 0.99, "glibc": 1.0, "a": 1.0}, {"x": "micro", "y": "micro"})
    assert stats.compare(rows, "time", "hakmem") == stats.compare(rows, "time", "hakmem")
    assert stats.geometric_means(rows, "time") == stats.geometric_means(rows, "time")


def heavy(rng: np.random.Generator, rounds: int) -> np.ndarray:
    return 0.02 * rng.standard_t(2, rounds)


def drifting(rng: np.random.Generator, rounds: int) -> np.ndarray:
    # The drift is shared by the round; each process adds its own place in it.
    return np.linspace(0, 0.2, rounds) + rng.normal(0, 0.02, rounds)


def bimodal(rng: np.random.Generator, rounds: int) -> np.ndarray:
    return 0.15 * rng.integers(0, 2, rounds) + rng.normal(0, 0.01, rounds)


def test_an_allocator_beats_itself():
    rng = np.random.default_rng(20260101)
    families = 200
    wrong = 0
    for trial in range(families):
        rows = []
        for place, noise in enumerate((heavy, drifting, bimodal, heavy, bimodal)):
            mine, other = noise(rng, 11), noise(rng, 11)
            rows += rows_of({"hakmem": list(np.exp(mine)), "a": list(np.exp(other))},
                            workload=f"w{trial}-{place}")  # fmt: skip
        found = stats.compare(rows, "time", "hakmem", "a")
        wrong += any(one.verdict in (stats.WIN, stats.LOSS) for one in found)
    # 5%, and what luck may add in so many families, once in a thousand.
    assert wrong <= scipy_stats.binom.ppf(0.999, families, 0.05)


def test_the_luckiest_of_many_alike_is_called_the_best():
    rng = np.random.default_rng(77)
    trials = 80
    wrong = 0
    for trial in range(trials):
        names = ("hakmem", "a", "b", "c")
        figures = {name: list(np.exp(heavy(rng, 11))) for name in names}
        verdict = stats.verdict_own(rows_of(figures, workload=f"w{trial}"))
        wrong += verdict.time.told
    assert wrong <= scipy_stats.binom.ppf(0.999, trials, 0.05)


def test_a_slowdown_of_5_percent_is_missed():
    rng = np.random.default_rng(11)
    missed = 0
    for trial in range(20):
        mine = 1.05 * np.exp(rng.normal(0, 0.02, 11))
        other = np.exp(rng.normal(0, 0.02, 11))
        rows = rows_of({"hakmem": list(mine), "a": list(other)}, workload=f"w{trial}")
        missed += only(stats.compare(rows, "time", "hakmem", "a")).verdict != stats.LOSS
    assert missed <= 2


def test_a_program_that_failed_once_moves_the_means_of_others():
    speeds = {"hakmem": 0.5, "glibc": 1.0, "broken": 0.1}
    rows = make_rows(speeds, {"x": "micro", "y": "micro"}, noise=0)
    for row in rows:
        if row["allocator"] == "broken" and row["workload"] == "x":
            row["error"] = "killed"
    ranking = stats.geometric_means(rows, "time")
    assert ranking.allocators_left_out == ("broken",)
    assert ranking.workloads == ("x", "y")
    assert ranking.of("hakmem").ratio == pytest.approx(0.5)


def test_a_failed_workload_counts_for_the_others():
    workloads = {name: "micro" for name in "wxyz"}
    rows = make_rows({"hakmem": 0.5, "glibc": 1.0, "some": 0.9}, workloads, noise=0)
    for row in rows:
        if row["allocator"] == "some" and row["workload"] == "x":
            row["error"] = "killed"
    ranking = stats.geometric_means(rows, "time")
    assert ranking.workloads_left_out == ("x",)
    assert len(ranking.means) == 3


def test_rounds_that_one_misses_stop_the_interval():
    rows = make_rows({"hakmem": 0.5, "glibc": 1.0}, {"x": "micro"}, rounds=11)
    del rows[3]
    mean = stats.geometric_means(rows, "time").of("hakmem")
    assert mean.low < mean.ratio < mean.high


def test_points_are_not_shared_by_ties():
    rows = rows_of({"a": [1.0] * 3, "b": [1.0] * 3, "c": [2.0] * 3, "d": [3.0] * 3})
    for row in rows:
        if row["allocator"] == "d":
            row["error"] = "killed"
    found = {one.allocator: one.total for one in stats.points(rows, ["time"])}
    assert found == {"a": 3.5, "b": 3.5, "c": 2.0, "d": 0.0}


def test_ones_own_program_gets_no_plain_answer():
    rows = make_rows({"hakmem": 0.8, "mimalloc2": 0.9, "glibc": 1.0}, {"mine": "own"}, rounds=11)
    verdict = stats.verdict_own(rows)
    assert verdict.time.told and verdict.time.best == "hakmem"
    assert verdict.time.confidence > 0.99
    assert verdict.time.over_glibc.ratio == pytest.approx(0.8, rel=0.02)
    assert "hakmem is the fastest" in verdict.sentences[0]
    assert "than mimalloc2, the next" in verdict.sentences[0]
    assert "than glibc" in verdict.sentences[0]
    assert verdict.memory.best in ("glibc", "hakmem") and not verdict.memory.told


def test_no_difference_is_passed_off_as_one():
    rows = make_rows({"hakmem": 1.0, "a": 1.0, "glibc": 1.5}, {"mine": "own"}, 11, noise=0.03)
    ranking = stats.verdict_own(rows).time
    assert not ranking.told
    assert "no difference can be told between" in ranking.sentence
    assert set(ranking.alike) | {ranking.best} == {"hakmem", "a"}


def test_a_verdict_on_little_is_given():
    few = make_rows({"hakmem": 0.5, "glibc": 1.0}, {"mine": "own"}, rounds=3)
    assert "too few rounds (3)" in stats.verdict_own(few).sentences[0]
    alone = make_rows({"hakmem": 0.5}, {"mine": "own"}, rounds=3)
    assert "nothing to compare" in stats.verdict_own(alone).sentences[0]
    for row in few:
        row["proof"] = ""
    verdict = stats.verdict_own(few)
    assert "no allocator has a figure" in verdict.sentences[0]
    assert set(verdict.refused) == {"hakmem", "glibc"}
    assert stats.verdict_own([]).sentences
    with pytest.raises(stats.StatsError, match="one workload"):
        stats.verdict_own(make_rows({"a": 1.0}, {"x": "own", "y": "own"}))


def test_pages_shared_by_processes_count_twice():
    figures = {"peak_rss_kib": 900, "peak_pss_kib": 400}
    rows = [make_row(1, "w", "a", processes=4, **figures)]
    assert stats.Cells(rows).median("w", "a", "memory") == 400
    rows[0]["processes"] = "1"
    assert stats.Cells(rows).median("w", "a", "memory") == 900


def test_an_unknown_metric_is_ignored():
    with pytest.raises(stats.StatsError, match="choose one of"):
        stats.metric("speed")
    assert stats.metric("user_s+system_s").sources == (("user_s", "system_s"),)


def test_noise_goes_unsaid():
    speeds = {"hakmem": 1.0, "glibc": 1.0}
    noisy = stats.noise(make_rows(speeds, {"x": "micro", "y": "micro"}, noise=0.2))
    assert any("Noisy" in sentence for sentence in noisy.sentences)
    quiet = stats.noise(make_rows(speeds, {"x": "micro", "y": "micro"}, noise=0.01))
    assert quiet.sentences == ()
    rows = make_rows(speeds, {"x": "micro"}, rounds=12)
    for row in rows:
        row["ns_per_op"] = str(float(row["ns_per_op"]) * 1.02 ** int(row["round"]))
    assert any("Drift" in sentence for sentence in stats.noise(rows).sentences)
    records = [{"loop_ms": 1.0, "steal": 0.0}, {"loop_ms": 1.2, "spread": 0.01, "steal": 0.1}]
    told = stats.noise(rows, records=records)
    assert (told.calibration, told.steal) == (pytest.approx(0.2), 0.05)
    assert sum("machine" in sentence for sentence in told.sentences) >= 2
