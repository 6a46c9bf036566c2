"""Which examples property tests are tried on."""

import hypothesis


def test_the_profile_is_the_one_asked_for(pytestconfig):
    asked = pytestconfig.getoption("--hypothesis-profile") or "same"
    # Other options of the plugin add to the name.
    assert hypothesis.settings.get_current_profile_name().startswith(asked)


def test_the_default_examples_are_the_same_every_time():
    same, search = map(hypothesis.settings.get_profile, ("same", "search"))
    assert same.derandomize and same.database is None
    assert not search.derandomize and search.database is not None
    assert search.max_examples > same.max_examples
