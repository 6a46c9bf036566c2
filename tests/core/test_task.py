"""What a task says of itself."""

from tests import toy


def test_a_task_is_shown_in_five_lines():
    lines = repr(toy.classifier_silos((7, 12))).splitlines()
    assert len(lines) == 5 and max(map(len, lines)) < 100
    assert lines[0].startswith("Task toy: silos") and "2 train, 2 valid, 2 test" in lines[1]
    assert "accuracy (higher is better)" in lines[4]
