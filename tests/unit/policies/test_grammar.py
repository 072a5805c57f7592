"""Names of policies: ORDER[+BACKFILL][+ADMISSION][/PLACEMENT]."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import InputError
from gpuyard.policies.grammar import Express, PolicySpec, parse_policy
from gpuyard.registry import registered


@pytest.mark.parametrize(
    ("name", "full_name"),
    [
        ("fifo", "fifo+strict/consolidate"),
        ("sjf+easy", "sjf+easy/consolidate"),
        ("sjf/spread", "sjf+strict/spread"),
        ("  fifo+greedy/anywhere ", "fifo+greedy/anywhere"),
        ("wspt+easy+express:600:0.1", "wspt+easy+express:600:0.1/consolidate"),
        ("wspt+express:600:0.1", "wspt+strict+express:600:0.1/consolidate"),
        ("fair-share+easy-sjf+express:1e3:2/first-fit", "fair-share+easy-sjf+express:1000:2/first-fit"),
        ("random+greedy/random", "random+greedy/random"),
        ("power:.50", "power:0.5+strict/consolidate"),
        ("power:0.5+easy+express:600:0.1", "power:0.5+easy+express:600:0.1/consolidate"),
        ("power:2e0/spread", "power:2+strict/spread"),
        ("sjf+age:3600", "sjf+strict+age:3600/consolidate"),
        ("wspt+easy+express:600:.1:8.64e4", "wspt+easy+express:600:0.1:86400/consolidate"),
        ("wspt+easy+express:600:0.1+age:86400", "wspt+easy+express:600:0.1:86400/consolidate"),
        ("wspt+easy+age:86400+express:600:0.1", "wspt+easy+express:600:0.1:86400/consolidate"),
    ],
)
def test_what_a_name_leaves_out_is_filled_in(name: str, full_name: str) -> None:
    assert parse_policy(name).name == full_name


def test_a_name_is_taken_apart() -> None:
    expected = PolicySpec("sjf", "easy", Express(600.0, 0.1), "spread")
    assert parse_policy("sjf+easy+express:600:0.1/spread") == expected


@given(
    st.sampled_from(sorted(set(registered("order")) - {"power"}))
    | st.floats(0.0, 8.0, exclude_min=True).map(lambda a: parse_policy(f"power:{a!r}").order),
    st.sampled_from(sorted(registered("backfill"))),
    st.none() | st.builds(Express, st.floats(1e-6, 1e15, exclude_min=True), st.floats(0, 1e9)),
    st.sampled_from(sorted(registered("placement"))),
    st.none() | st.floats(1e-6, 2.0**32),
)
def test_a_full_name_reads_back_as_the_same_policy(
    order: str, backfill: str, admission: Express | None, placement: str, max_wait_s: float | None
) -> None:
    spec = PolicySpec(order, backfill, admission, placement, max_wait_s)
    assert parse_policy(spec.name) == spec
    assert parse_policy(spec.name).name == spec.name


@pytest.mark.parametrize(
    ("name", "unknown", "suggestion"),
    [
        ("sjff+easy", "unknown order 'sjff'", "did you mean 'sjf+easy'?"),
        ("fifo+eazy", "unknown backfill 'eazy'", "did you mean 'fifo+easy'?"),
        (
            "fifo+easy/consolidated",
            "unknown placement 'consolidated'",
            "did you mean 'fifo+easy/consolidate'?",
        ),
        ("fairshare", "unknown order 'fairshare'", "did you mean 'fair-share'?"),
        ("qqqq", "unknown order 'qqqq'", "known: fifo, lifo, sjf"),
        ("", "unknown order ''", "known: fifo"),
        ("fifo/", "unknown placement ''", "known: consolidate"),
        ("fifo+", "unknown backfill ''", "known: strict"),
        ("FIFO", "unknown order 'FIFO'", "fifo"),
    ],
)
def test_an_unknown_part_is_named_and_a_close_one_suggested(name: str, unknown: str, suggestion: str) -> None:
    with pytest.raises(InputError) as error:
        parse_policy(name)
    assert unknown in str(error.value)
    assert suggestion in str(error.value)


def test_an_order_with_a_number_is_taken_apart() -> None:
    spec = parse_policy("power:0.5+easy")
    assert (spec.order, spec.order_name, spec.order_parameter) == ("power:0.5", "power", 0.5)
    assert parse_policy("sjf+easy").order_name == "sjf"


@pytest.mark.parametrize("order", ["power", "power:", "power:half", "power:1:2", "power:0,5"])
def test_a_power_without_its_number_is_refused_with_a_corrected_name(order: str) -> None:
    with pytest.raises(InputError, match=r"expected power:A .* such as 'power:0\.5\+easy/spread'"):
        parse_policy(f"{order}+easy/spread")


@pytest.mark.parametrize("exponent", ["0", "-1", "8.001", "inf", "nan"])
def test_a_power_out_of_range_is_refused(exponent: str) -> None:
    with pytest.raises(InputError, match=f"above 0 and up to 8, but got 'power:{exponent}'"):
        parse_policy(f"power:{exponent}+easy")


@pytest.mark.parametrize(
    "name", ["srpt", "backfill", "easy", "tier", "sjf-easy", "fifo:2", "-fifo", "fifo fifo"]
)
def test_names_of_no_order_are_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=rf"unknown order '{name}' in policy '{name}'"):
        parse_policy(name)


@pytest.mark.parametrize("name", ["conservativ", "none", "preempt", "fifo", "tier", "easy:2"])
def test_names_of_no_backfill_are_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=rf"unknown backfill '{name}' in policy 'fifo\+{name}'"):
        parse_policy(f"fifo+{name}")


@pytest.mark.parametrize("name", ["easy", "tiers", "milp:4", "pack", "fifo", "tier-balance/tier"])
def test_names_of_no_placement_are_refused_by_name(name: str) -> None:
    with pytest.raises(InputError, match=rf"unknown placement '{name}' in policy 'fifo\+easy/{name}'"):
        parse_policy(f"fifo+easy/{name}")


@pytest.mark.parametrize(
    "option", ["express", "express:600", "express:600:", "express:a:b", "express:1:2:3:4", "express:ten:1"]
)
def test_an_express_lane_without_two_numbers_is_refused_with_an_example(option: str) -> None:
    with pytest.raises(InputError, match=r"express:T0:K with two numbers, such as express:600:0\.1"):
        parse_policy(f"fifo+easy+{option}")


@pytest.mark.parametrize(
    "option", ["express:0:1", "express:-1:1", "express:1:-0.5", "express:nan:1", "express:1:inf"]
)
def test_an_express_lane_with_impossible_numbers_is_refused(option: str) -> None:
    with pytest.raises(InputError, match="express needs T0 > 0 seconds and K >= 0"):
        parse_policy(f"fifo+{option}")


def test_two_express_lanes_are_refused() -> None:
    with pytest.raises(InputError, match="two admission rules"):
        parse_policy("fifo+easy+express:600:0.1+express:60:1")


@pytest.mark.parametrize("option", ["age", "age:", "age:a", "age:1:2", "age:1d"])
def test_an_ageing_bound_without_a_number_is_refused_with_an_example(option: str) -> None:
    with pytest.raises(InputError, match="expected age:MAXWAIT with a number of seconds, such as age:86400"):
        parse_policy(f"fifo+easy+{option}")


@pytest.mark.parametrize("bound", ["0", "-1", "inf", "nan", "1e10"])
@pytest.mark.parametrize("rule", ["age", "express:600:0.1"])
def test_an_impossible_ageing_bound_is_refused(rule: str, bound: str) -> None:
    with pytest.raises(InputError, match=f"MAXWAIT must be .* but got '{rule}:{bound}'"):
        parse_policy(f"fifo+easy+{rule}:{bound}")


@pytest.mark.parametrize("rules", ["age:1+age:2", "express:600:0.1:1+age:1", "age:1+express:600:0.1:1"])
def test_two_ageing_bounds_are_refused(rules: str) -> None:
    with pytest.raises(InputError, match="two ageing bounds; state one"):
        parse_policy(f"fifo+easy+{rules}")


@pytest.mark.parametrize("name", ["fifo+easy+greedy", "fifo+express:1:1+easy", "fifo+age:1+easy"])
def test_parts_in_a_wrong_place_are_refused_with_the_grammar(name: str) -> None:
    with pytest.raises(InputError, match=r"cannot read .*ORDER\[\+BACKFILL\]"):
        parse_policy(name)


@pytest.mark.parametrize(
    ("name", "uses"),
    [
        ("fifo", False),
        ("sjf", True),
        ("fifo+easy", True),
        ("fifo+greedy", False),
        ("fifo+express:1:1", True),
        ("fifo+conservative", True),
        ("power-aware", True),
        ("srtf+greedy", True),
        ("las", False),
        ("qssf", False),
        ("fifo/power-aware", False),
        ("fifo/milp", False),
        ("power:0.5", True),
    ],
)
def test_a_policy_says_whether_it_needs_estimates(name: str, uses: bool) -> None:
    assert parse_policy(name).uses_estimates is uses


def test_exactly_the_orders_that_the_contract_marks_preemptive_preempt() -> None:
    names = [rule.usable_name for rule in registered("order").values()]
    preempting = [name for name in names if parse_policy(f"{name}+greedy").preempts]
    assert preempting == ["srtf", "ssf", "las", "las-2d", "tiresias", "gittins"]


@pytest.mark.parametrize(
    ("name", "full_name"),
    [
        ("las", "las+strict/consolidate"),
        ("las-2d+greedy/tier-balance", "las-2d+greedy/tier-balance"),
        ("group-fair-share+conservative", "group-fair-share+conservative/consolidate"),
        ("power-aware/power-aware", "power-aware+strict/power-aware"),
        ("f1/milp", "f1+strict/milp"),
    ],
)
def test_names_with_hyphens_and_names_of_two_kinds_are_told_apart(name: str, full_name: str) -> None:
    assert parse_policy(name).name == full_name
