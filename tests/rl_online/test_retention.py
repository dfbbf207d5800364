import pytest

from rl_online.retention import Choice, Version, choose


def line(count: int, *, gone: tuple[int, ...] = (), no_delta: tuple[int, ...] = (), **needed: str) -> list[Version]:
    """Versions 1..count, each made from the one before; `v3="pinned"` says what needs version 3."""
    return [
        Version(
            number=number,
            parent=number - 1 or None,
            has_files=number not in gone,
            needed_for=needed.get(f"v{number}", ""),
            has_delta=number > 1 and number not in no_delta,
        )
        for number in range(1, count + 1)
    ]


def made_again(choice: Choice, versions: list[Version]) -> set[int]:
    """Versions that are there, or can be made again from what the choice leaves."""
    found = set(choice.keep)
    for one in sorted(versions, key=lambda one: one.number):
        if one.number in choice.deltas and one.parent in found:
            found.add(one.number)
    return found


def test_the_newest_and_the_needed_stay_and_the_rest_goes():
    choice = choose(line(9, v1="the first", v4="pinned"), newest=2, rebuildable=1)
    assert choice.keep == {1: "the first", 4: "pinned", 8: "one of the newest", 9: "one of the newest"}
    assert choice.delete == [2, 3, 5, 6, 7]


def test_fewer_than_what_is_kept_all_stay():
    choice = choose(line(3), newest=20, rebuildable=200)
    assert (sorted(choice.keep), choice.delete, choice.deltas) == ([1, 2, 3], [], {2, 3})


def test_everything_in_the_window_can_be_made_again():
    versions = line(57, v1="the first")
    choice = choose(versions, newest=3, rebuildable=40)
    assert set(range(18, 58)) <= made_again(choice, versions)
    assert len(choice.keep) < 12, "most of them go"


def test_keyframes_bound_how_long_a_chain_gets():
    versions = line(100, v1="the first")
    choice = choose(versions, newest=2, rebuildable=80)
    kept = sorted(choice.keep)
    assert {30, 40, 50, 60, 70, 80, 90} <= set(kept)


def test_the_window_moves_on_without_breaking_a_chain():
    gone: set[int] = set()
    deltas = set(range(2, 1000))
    for newest in range(30, 160):
        versions = [
            Version(
                number=number,
                parent=number - 1 or None,
                has_files=number not in gone,
                needed_for="the first" if number == 1 else "",
                has_delta=number in deltas,
            )
            for number in range(1, newest + 1)
        ]
        choice = choose(versions, newest=3, rebuildable=25)
        gone |= set(choice.delete)
        deltas = choice.deltas | set(range(newest + 1, 1000))
        assert set(range(newest - 24, newest + 1)) <= made_again(choice, versions), newest
        assert len(choice.keep) <= 10 and len(choice.deltas) <= 50, "what is kept does not grow"


def test_where_a_delta_is_missing_the_one_behind_it_stays():
    versions = line(12, no_delta=(7,), v1="the first")
    choice = choose(versions, newest=1, rebuildable=12)
    assert choice.keep[7] == "a chain of deltas starts here"
    assert set(range(1, 13)) <= made_again(choice, versions)


def test_what_cannot_be_made_again_any_more_is_no_error():
    choice = choose(line(12, gone=(2, 3), no_delta=(2, 3)), newest=1, rebuildable=12)
    assert not {2, 3} & set(choice.delete)


def test_a_needed_one_without_files_is_not_said_to_be_kept():
    assert 2 not in choose(line(5, gone=(2,), v2="pinned"), newest=1, rebuildable=1).keep


@pytest.mark.parametrize("count", [1, 2, 11, 40])
def test_each_version_with_files_is_kept_or_deleted_never_both(count: int):
    choice = choose(line(count, v1="the first"), newest=4, rebuildable=15)
    assert set(choice.keep) | set(choice.delete) == set(range(1, count + 1))
    assert not set(choice.keep) & set(choice.delete)
