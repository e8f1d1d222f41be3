"""Groups whose needs are missing are skipped, or fail where they must run (see needs.py)."""

import pytest
from hypothesis import settings

import needs
import tandemlog  # noqa: F401 - before gRPC, which a test may load first: see there

# The same examples in every run, and none fails because the machine is busy.
settings.register_profile("tandemlog", deadline=None, derandomize=True)
settings.load_profile("tandemlog")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for group in needs.NEEDS:
            if item.get_closest_marker(group) is None:
                continue
            reason = needs.missing(group)
            if reason and not needs.must_run():
                item.add_marker(pytest.mark.skip(reason=f"{group}: {reason}"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    for group in needs.NEEDS:
        if item.get_closest_marker(group) is not None and needs.must_run():
            reason = needs.missing(group)
            if reason:
                pytest.fail(f"{group} must run with CI=true, but: {reason}", pytrace=False)
