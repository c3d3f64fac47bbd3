import json
from pathlib import Path
from typing import Any

import pytest

from services.cli.sampling_plot import SHOWN, draw, main, most_drawn, rates, share_of_draws, stages

STAGES = ["explore"] * 2 + ["exploit"] * 6 + ["settle"] * 2


def record(categories: int = 2) -> list[dict[str, Any]]:
    """Category n is drawn n + 1 times a step; half of its groups are kept; it is judged in even steps only."""
    return [
        {
            "step": step, "stage": STAGES[step], "temperature": 0.4, "least_share": 0.005,
            "categories": {
                f"c{n}": {
                    "probability": 1 / categories, "draws": n + 1, "judged": 2 * (1 - step % 2), "kept": 1 - step % 2,
                    "answers": 16 * (1 - step % 2), "correct": 4.0 * (1 - step % 2),
                }
                for n in range(categories)
            },
        }
        for step in range(10)
    ]  # fmt: skip


def test_the_stages_follow_one_another() -> None:
    spans = [(name, first, end) for name, _, first, end in stages(record())]
    assert spans == [("explore", 0, 2), ("exploit", 2, 8), ("settle", 8, 10)]


def test_the_shares_of_the_draws_add_up_to_one_with_the_others() -> None:
    rows = record(10)
    names = most_drawn(rows)
    assert names == [f"c{n}" for n in range(10 - SHOWN, 10)]
    shares = share_of_draws(rows, names)
    assert sum(column[-1] for column in shares) == pytest.approx(1.0)
    assert shares[-1][-1] == pytest.approx((1 + 2 + 3) / 55)


def test_rates_are_of_all_that_was_judged_in_the_window() -> None:
    assert rates(record(), "c0", of=("correct", "answers"))[1] == pytest.approx([0.25] * 10)
    late = [row | {"step": row["step"] - 1} for row in record()[1:]]  # in its first step nothing is judged
    assert rates(late, "c0", of=("kept", "judged"))[0] == list(range(1, 9))


@pytest.mark.parametrize("categories", [1, 2, 10])
def test_the_picture_is_drawn_whatever_the_number_of_categories(tmp_path: Path, categories: int) -> None:
    draw(record(categories), tmp_path / "sampling.png", title="r")
    assert (tmp_path / "sampling.png").read_bytes().startswith(b"\x89PNG")


def test_the_verb_draws_the_record_of_a_run_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sampling.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in record()))
    assert main([str(tmp_path)]) == 0
    assert (tmp_path / "sampling.png").exists()
    assert "sampling.png" in capsys.readouterr().out


def test_a_run_without_a_record_is_the_user_s_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert 'only runs with [filter] sampling other than "uniform"' in capsys.readouterr().err
