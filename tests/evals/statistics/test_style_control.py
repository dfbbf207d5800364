import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from evals.statistics.battles import battles
from evals.statistics.bradley_terry import rank_battles
from evals.statistics.style_control import control, style_difference

NAMES = ("A", "B", "C", "D")


def made_up(n=3000, seed=11, taste=0.9):
    """Battles in which readers like length; A is weak but long-winded."""
    rng = np.random.default_rng(seed)
    strength = np.array([-0.4, 0.3, 0.1, 0.0])
    left = rng.integers(0, 4, n)
    right = (left + rng.integers(1, 4, n)) % 4
    lengths = rng.gamma(4, 50, (n, 2)) * np.where(np.column_stack([left, right]) == 0, 2.5, 1.0)
    gap = np.array(style_difference(lengths[:, 0], lengths[:, 1]))
    won = rng.random(n) < expit(strength[left] - strength[right] + taste * gap / math.sqrt((gap**2).mean()))
    clusters = rng.integers(0, 200, n).tolist()
    names = [NAMES[one] for one in left], [NAMES[one] for one in right]
    return battles(*names, won, cluster=clusters), gap, strength


def test_a_difference_is_relative_and_0_where_neither_side_has_any():
    assert style_difference([300, 0, 2], [100, 0, 0]) == [0.5, 0.0, 1.0]
    with pytest.raises(ValueError, match="1 left, 2 right"):
        style_difference([1], [1, 2])


def test_what_length_won_is_taken_off_the_strength():
    played, gap, strength = made_up()
    plain = {row.name: row.strength for row in rank_battles(played).rows}
    found = control(played, {"length": gap}, ridge=0.0)
    assert plain["A"] > 0.2  # verbose, and so believed to be good
    for name, true in zip(NAMES, strength, strict=True):
        one = found.strengths[name]
        assert abs(one.value - true) < 4 * one.se
    assert found.style["length"].low < 0.9 < found.style["length"].high


def test_strengths_and_errors_equal_statsmodels():
    played, gap, _ = made_up(800)
    design = np.zeros((len(played), 4))
    design[np.arange(len(played)), played.left] += 1
    design[np.arange(len(played)), played.right] -= 1
    scaled = gap / np.sqrt((gap**2).mean())
    fitted = sm.Logit(played.result, np.column_stack([design[:, :3], scaled])).fit(
        disp=0, cov_type="cluster", cov_kwds={"groups": played.cluster, "use_correction": False}
    )
    centre = np.zeros((5, 4))
    centre[:4, :3] = np.eye(4)[:, :3] - 1 / 4  # D is 0 there; here the mean is
    centre[4, 3] = 1
    factor = math.sqrt(played.num_clusters / (played.num_clusters - 1))
    found = control(played, {"length": gap}, ridge=0.0)
    ours = [*found.strengths.values(), *found.style.values()]
    assert [one.value for one in ours] == pytest.approx(list(centre @ fitted.params), abs=1e-6)
    errors = factor * np.sqrt(np.diag(centre @ fitted.cov_params() @ centre.T))
    assert [one.se for one in ours] == pytest.approx(list(errors), abs=1e-6)
    assert ours[0].num_clusters == played.num_clusters


def test_a_ridge_on_all_equals_scikit_learn():
    played, gap, _ = made_up(500)
    design = np.zeros((len(played), 5))
    design[np.arange(len(played)), played.left] += 1
    design[np.arange(len(played)), played.right] -= 1
    design[:, 4] = gap / np.sqrt((gap**2).mean())
    oracle = LogisticRegression(C=1 / 0.5, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(design, played.result)
    found = control(played, {"length": gap})
    ours = [one.value for one in (*found.strengths.values(), *found.style.values())]
    assert ours == pytest.approx(oracle.coef_[0].tolist(), abs=1e-5)


def test_naming_the_sides_the_other_way_round_changes_nothing():
    played, gap, _ = made_up(600)
    names = np.array(NAMES)
    swapped = battles(
        names[played.right].tolist(), names[played.left].tolist(), 1 - played.result, cluster=played.cluster.tolist()
    )
    there, back = control(played, {"length": gap}), control(swapped, {"length": -gap})
    assert [one.value for one in back.strengths.values()] == pytest.approx(
        [one.value for one in there.strengths.values()], abs=1e-9
    )
    assert back.style["length"].value == pytest.approx(there.style["length"].value, abs=1e-9)


def test_without_styles_it_is_the_plain_ranking():
    played, _, _ = made_up(600)
    plain = {row.name: (row.strength, row.se) for row in rank_battles(played).rows}
    found = control(played, {}, ridge=0.0).strengths
    for name, (strength, se) in plain.items():
        assert (found[name].value, found[name].se) == (pytest.approx(strength), pytest.approx(se))


def test_a_style_that_never_differs_is_refused_before_it_is_divided_by():
    played, _, _ = made_up(10)
    with pytest.raises(ValueError, match="lists never differs"):
        control(played, {"lists": [0.0] * 10})


def test_every_battle_has_its_difference():
    played, _, _ = made_up(10)
    with pytest.raises(ValueError, match="length has 3 differences for 10 battles"):
        control(played, {"length": [0.1, 0.2, 0.3]})


def test_separable_data_is_undefined_without_a_ridge_and_finite_with_one():
    played = battles(["A"] * 6, ["B"] * 6, [1] * 6)
    gap = [0.1, -0.2, 0.3, 0.1, -0.4, 0.2]
    bare, pulled = control(played, {"length": gap}, ridge=0.0), control(played, {"length": gap})
    assert (bare.strengths["A"].value, bare.style["length"].value) == (None, None)
    assert "a ridge always gives an answer" in bare.strengths["A"].undefined
    assert pulled.strengths["A"].value > 0


def test_one_cluster_leaves_the_errors_unknown():
    played = battles(["A", "A", "B"], ["B", "B", "A"], [1, 0, 1], cluster=["x"] * 3)
    found = control(played, {"length": [0.5, -0.2, 0.1]}).strengths["A"]
    assert found.value is not None and (found.se, found.low) == (None, None)


def test_no_battles_are_no_data():
    assert control(battles([], [], []), {}).strengths == {}
