from common.chunks import MAX_QUESTIONS
from services.weights.turns import Bucket, Turns


def test_peers_are_answered_in_turn_however_many_questions_one_has() -> None:
    turns: Turns[int] = Turns()
    for number in range(4):
        turns.add(b"greedy", number)
    turns.add(b"modest", 9)
    assert [turns.next()[0] for _ in range(5)] == [b"greedy", b"modest", b"greedy", b"greedy", b"greedy"]
    assert not turns


def test_a_peer_that_asks_too_much_is_refused_and_the_others_are_not() -> None:
    turns: Turns[int] = Turns()
    assert all(turns.add(b"a", number) for number in range(MAX_QUESTIONS))
    assert not turns.add(b"a", 0)
    assert turns.add(b"b", 0)


def test_a_peer_that_is_gone_is_forgotten() -> None:
    turns: Turns[int] = Turns()
    turns.add(b"a", 1)
    turns.forget(b"a")
    assert not turns


def test_the_bucket_lets_its_rate_through_and_no_more() -> None:
    now = 0.0
    bucket = Bucket(1000.0, 100, lambda: now)
    sent = 0
    while now < 10.0:
        if bucket.wait_s() == 0:
            bucket.spend(400)
            sent += 400
        now += 0.01
    # 1000 a second for 10 s, a burst of 100, and one piece that may be under way
    assert 9600 <= sent <= 10_500


def test_no_rate_is_no_limit() -> None:
    bucket = Bucket(0.0, 100, lambda: 0.0)
    bucket.spend(1 << 40)
    assert bucket.wait_s() == 0.0
