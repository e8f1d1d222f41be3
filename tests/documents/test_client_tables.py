"""What docs say of RocketMQ's clients is what the interop tests run by (`make docs` writes it)."""

from interop.client_tables import PAGE, TESTS_PAGE, TITLES, with_sections
from interop.integration_outcomes import outcomes, page, reasons
from interop.scenarios import SCENARIOS


def test_the_tables_are_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_sections(text), "run `make docs`"
    assert TESTS_PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_each_scenario_has_a_title() -> None:
    assert sorted(TITLES) == sorted(SCENARIOS)


def test_each_reason_has_a_sentence_and_is_the_reason_of_something() -> None:
    used = {each.not_run for each in outcomes()} - {""}
    used |= {reason for each in outcomes() for reason in each.fails.values()}
    assert used == set(reasons())
