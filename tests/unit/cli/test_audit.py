"""`dapo audit`: a good history passes; for each kind of violation a history doctored to have it is caught.

The good run: two groups per batch, max_staleness 1, killed and resumed learner, one group dropped, one dead, one that
waits in a batch with its companion, one still in `prompts`.
"""

import copy
import json
import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import msgpack
import pytest

from services.cli.audit.__main__ import audit, main

Run = dict[str, Any]


def issued(tx: int, name: str, min_version: int = 0) -> dict[str, Any]:
    return {"event": "issued", "tx": tx, "id": name, "min_version": min_version}


def settled(tx: int, name: str, reason: str = "", fate: str = "dropped") -> dict[str, Any]:
    return {"event": "settled", "tx": tx, "id": name, "fate": fate, "reason": reason}


def batched(tx: int, step: int, *ids: str) -> dict[str, Any]:
    return {"event": "batched", "tx": tx, "step": step, "ids": list(ids), "oldest": 0}


def trained(step: int, oldest: int, *ids: str) -> dict[str, Any]:
    return {"event": "trained", "step": step, "ids": list(ids), "oldest": oldest, "tokens": 8}


def published(version: int, digest: str | None = None) -> dict[str, Any]:
    return {"event": "published", "version": version, "digest": digest or f"d{version}"}


def loaded(version: int, digest: str | None = None) -> dict[str, Any]:
    return {"event": "loaded", "version": version, "digest": digest or f"d{version}"}


def sampled(name: str, *spans: list[int]) -> dict[str, Any]:
    return {"event": "sampled", "id": name, "spans": [[list(span) for span in spans] or [[0, 0, 4]]]}


def good_run() -> Run:
    return {
        "config": {"max_staleness": 1, "on_stale": "wait"},
        "registers": {"filter": 9, "policy": 5},
        "live": [("prompts", "0/000008"), ("batches", "2"), ("prompts", "eval/2/000000")],
        "dead": [("groups", "0/000005")],
        "history": {
            "filter-0-1": [
                *(issued(1, f"0/00000{i}") for i in range(5)),
                settled(2, "0/000004", "all_wrong"),
                batched(3, 0, "0/000000", "0/000001"),
                # Never committed: this filter died, and its successor wrote transaction 4 anew.
                batched(4, 1, "0/000003", "0/000002"),
            ],
            "filter-0-2": [
                batched(4, 1, "0/000002", "0/000003"),
                settled(5, "0/000000", fate="trained"),
                settled(5, "0/000001", fate="trained"),
                *(issued(6, f"0/00000{i}", 1) for i in range(5, 9)),
                settled(7, "0/000005", "dead"),
                batched(8, 2, "0/000006", "0/000007"),
                issued(9, "eval/2/000000", 2),
                # Beyond the register's version: this transaction was never committed.
                settled(10, "0/000008", "all_right"),
            ],
            "learner-0-1": [
                {"event": "resumed", "step": 0},
                published(0),
                trained(0, 0, "0/000000", "0/000001"),
                published(1),
                {"event": "checkpointed", "step": 1},
                trained(1, 0, "0/000002", "0/000003"),
                published(2),
            ],
            "learner-0-2": [
                {"event": "resumed", "step": 1},
                trained(1, 0, "0/000002", "0/000003"),
                published(2),
            ],
            "rollout-0-1": [
                loaded(0),
                *(sampled(f"0/00000{i}") for i in range(5)),
                loaded(1),
                sampled("0/000006", [1, 0, 3]),
                loaded(2),
                sampled("0/000007", [1, 0, 3], [2, 3, 6]),
            ],
            "rollout-1-3": [loaded(0), sampled("0/000002"), sampled("eval/2/000000", [0, 0, 2])],
            "supervisor-0-0": [{"event": "started", "name": "broker-0", "pid": 1}],
        },
    }


def write(folder: Path, run: Run) -> Path:
    (folder / "history").mkdir()
    config = "".join(f"{key} = {json.dumps(value)}\n" for key, value in run["config"].items())
    assert tomllib.loads(config) == run["config"]
    (folder / "config.toml").write_text(f"[run]\n{config}")
    for name, records in run["history"].items():
        data = b"".join(msgpack.packb({"time": 0.0, **record}) for record in records)
        (folder / "history" / f"{name}.msgpack").write_bytes(data + run.get("torn", {}).get(name, b""))
    database = sqlite3.connect(folder / "broker.db")
    database.execute("CREATE TABLE items (seq INTEGER PRIMARY KEY, queue TEXT, id TEXT, dead INTEGER)")
    database.execute("CREATE TABLE registers (name TEXT PRIMARY KEY, version INTEGER, value BLOB)")
    items = [*((q, i, 0) for q, i in run["live"]), *((q, i, 1) for q, i in run["dead"])]
    database.executemany("INSERT INTO items (queue, id, dead) VALUES (?,?,?)", items)
    database.executemany("INSERT INTO registers VALUES (?,?,x'')", run["registers"].items())
    database.commit()
    database.close()
    return folder


def test_a_good_run_passes_and_its_account_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(write(tmp_path, good_run()))]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["violations"] == []
    # 9 issued = 4 trained + 1 all_wrong + 1 dead + 3 left (two in batch 2, one in prompts)
    assert report["issued"] == 9
    assert (report["trained"], report["filtered"], report["dead"]) == (4, {"all_wrong": 1}, 1)
    assert (report["left"], report["lost"], report["trained_twice"]) == (3, 0, 0)
    # step 1 trained tokens of version 0
    assert (report["greatest_age"], report["max_staleness"]) == (1, 1)
    assert (report["steps"], report["steps_trained_again"], report["versions"]) == (2, 1, 3)


def test_a_torn_last_record_is_ignored(tmp_path: Path) -> None:
    run = good_run()
    run["torn"] = {"rollout-0-1": msgpack.packb(sampled("0/000008"))[:-3]}
    assert audit(write(tmp_path, run))["ok"]


def test_tokens_that_are_too_old_may_be_in_a_batch_that_masks_them(tmp_path: Path) -> None:
    run = good_run()
    run["config"]["on_stale"] = "mask"
    run["history"]["learner-0-2"] += [trained(2, 1, "0/000006", "0/000007")]
    run["live"].remove(("batches", "2"))
    run["history"]["rollout-0-1"] += [sampled("0/000006", [0, 0, 2], [1, 2, 4])]
    run["history"]["rollout-0-1"].remove(sampled("0/000006", [1, 0, 3]))
    run["history"]["rollout-0-1"].insert(7, sampled("0/000006", [0, 0, 2], [1, 2, 4]))
    report = audit(write(tmp_path, run))
    assert (report["ok"], report["greatest_age"]) == (False, 1), "version 0 precedes the min_version 1 of the prompt"
    assert {violation.partition(":")[0] for violation in report["violations"]} == {"before_min_version"}


def test_of_two_samplings_of_an_id_the_one_that_fits_counts(tmp_path: Path) -> None:
    run = good_run()
    # A rollout sampled 0/000006 with version 0 too, lost its lease, and its group was refused.
    run["history"]["rollout-1-3"] += [sampled("0/000006")]
    assert audit(write(tmp_path, run))["ok"]


def lose(run: Run) -> None:
    run["live"].remove(("prompts", "0/000008"))


def lose_a_batch(run: Run) -> None:
    run["live"].remove(("batches", "2"))


def issue_twice(run: Run) -> None:
    run["history"]["filter-0-2"].append(issued(9, "0/000001"))


def train_a_stranger(run: Run) -> None:
    run["history"]["learner-0-2"].append(trained(2, 2, "7/000000", "7/000001"))


def drop_what_was_trained(run: Run) -> None:
    run["history"]["filter-0-2"].append(settled(9, "0/000001", "stale"))


def drop_twice(run: Run) -> None:
    run["history"]["filter-0-2"].append(settled(9, "0/000004", "all_right"))


def drop_as_dead_what_is_not(run: Run) -> None:
    run["dead"].clear()


def queue_what_was_trained(run: Run) -> None:
    run["live"].append(("scored", "0/000001"))


def queue_in_two_places(run: Run) -> None:
    run["live"].append(("scored", "0/000008"))


def train_twice(run: Run) -> None:
    run["history"]["learner-0-2"].append(trained(2, 1, "0/000006", "0/000001"))


def batch_twice(run: Run) -> None:
    run["history"]["filter-0-2"].append(batched(9, 3, "0/000006"))


def acknowledge_what_was_not_trained(run: Run) -> None:
    run["history"]["filter-0-2"].append(settled(9, "0/000008", fate="trained"))


def skip_a_step(run: Run) -> None:
    run["history"]["learner-0-2"].append(trained(3, 2))
    run["history"]["filter-0-2"].append(batched(9, 3))


def train_another_batch(run: Run) -> None:
    run["history"]["learner-0-2"][1] = trained(1, 0, "0/000003", "0/000002")


def train_stale_tokens(run: Run) -> None:
    run["history"]["learner-0-2"].append(trained(2, 0, "0/000006", "0/000007"))


def sample_stale_tokens(run: Run) -> None:
    run["history"]["learner-0-2"].append(trained(2, 1, "0/000006", "0/000007"))
    run["history"]["rollout-0-1"][7] = sampled("0/000006", [0, 0, 1], [1, 1, 3])


def train_what_nobody_sampled(run: Run) -> None:
    run["history"]["rollout-0-1"].remove(sampled("0/000001"))


def load_an_older_version(run: Run) -> None:
    run["history"]["rollout-0-1"].append(loaded(1))


def fall_back_within_a_sample(run: Run) -> None:
    run["history"]["rollout-0-1"][-1] = sampled("0/000007", [2, 0, 3], [1, 3, 6])


def leave_a_gap(run: Run) -> None:
    run["history"]["rollout-0-1"][-1] = sampled("0/000007", [1, 0, 3], [2, 4, 6])


def name_a_version_never_loaded(run: Run) -> None:
    run["history"]["rollout-0-1"].remove(loaded(1))


def name_a_version_never_published(run: Run) -> None:
    run["history"]["rollout-0-1"].append(sampled("0/000008", [9, 0, 3]))


def load_other_weights(run: Run) -> None:
    run["history"]["rollout-0-1"][-2] = loaded(2, "other")


def start_before_min_version(run: Run) -> None:
    run["history"]["filter-0-2"] += [issued(9, "0/000009", 2)]
    run["live"].append(("groups", "0/000009"))
    run["history"]["rollout-0-1"] += [sampled("0/000009", [1, 0, 3])]


def damage(run: Run) -> None:
    run["torn"] = {"learner-0-1": b"\xc1 not a record"}


@pytest.mark.parametrize(
    ("doctor", "kind"),
    [
        (lose, "lost"),
        (lose_a_batch, "lost"),
        (issue_twice, "issued_twice"),
        (train_a_stranger, "not_issued"),
        (drop_what_was_trained, "two_fates"),
        (drop_twice, "two_fates"),
        (drop_as_dead_what_is_not, "not_dead"),
        (queue_what_was_trained, "still_queued"),
        (queue_in_two_places, "two_places"),
        (train_twice, "trained_twice"),
        (batch_twice, "batched_twice"),
        (acknowledge_what_was_not_trained, "not_trained"),
        (skip_a_step, "missing_step"),
        (train_another_batch, "batch_differs"),
        (train_stale_tokens, "too_old"),
        (sample_stale_tokens, "too_old"),
        (train_what_nobody_sampled, "not_sampled"),
        (load_an_older_version, "version_shrinks"),
        (fall_back_within_a_sample, "version_shrinks"),
        (leave_a_gap, "span_gap"),
        (name_a_version_never_loaded, "span_not_loaded"),
        (name_a_version_never_published, "not_published"),
        (load_other_weights, "wrong_digest"),
        (start_before_min_version, "before_min_version"),
        (damage, "damaged"),
    ],
)
def test_a_doctored_history_is_caught(tmp_path: Path, doctor: Any, kind: str) -> None:
    run = good_run()
    before = copy.deepcopy(run)
    doctor(run)
    assert run != before, "the doctor changed nothing"
    report = audit(write(tmp_path, run))
    assert not report["ok"]
    assert kind in {violation.partition(":")[0] for violation in report["violations"]}


def test_a_folder_that_is_no_run_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "nowhere")]) == 2
    assert "give the folder of a run" in capsys.readouterr().err


def test_the_audit_shares_no_code_with_what_it_audits() -> None:
    folder = Path("services/cli/audit")
    imports = [
        line for path in folder.glob("*.py") for line in path.read_text().splitlines()
        if line.startswith(("import ", "from ")) and ("services" in line or "common" in line)
    ]  # fmt: skip
    assert imports
    assert all(line.startswith("from services.cli.audit.") for line in imports)


@pytest.mark.parametrize("decision", ["retried", "dropped"])
def test_a_dead_letter_that_a_person_decided_about_stays_accounted_for(tmp_path: Path, decision: str) -> None:
    run = good_run()
    run["dead"] = []
    events = [{"event": event, "queue": "groups", "id": "0/000005"} for event in ("dead", decision)]
    run["history"]["broker-0-1"] = events
    if decision == "retried":
        run["live"].append(("groups", "0/000005"))
    report = audit(write(tmp_path, run))
    assert report["violations"] == []
    assert (report["dead"], report["lost"]) == (1, 0)
