"""The order of a client's passes."""

import pytest
import tensorflow as tf

from motley_tff.core import client_work


def _pass(part="train", **kwargs):
    return client_work.Pass(part, lambda carry, batch: carry, 4, **kwargs)


def _work(passes, loop, **kwargs):
    return client_work.ClientWork(
        lambda *arguments: (), passes, lambda carry: carry, loop=loop, **kwargs
    )


def _walked(work):
    """Returns (position, loop) of each pass in the order in which they are walked."""
    walked = []

    def walk(which, loop, carry):
        walked.extend((i, int(loop)) for i in which)
        return carry

    def repeat(times, body, carry):
        for i in range(times):
            carry = body(tf.constant(i), carry)
        return carry

    client_work.walk_over(work, walk, repeat, tf.constant(0.0))
    return walked


def test_the_loop_comes_after_the_passes_and_draws_again_after_its_period():
    work = _work((_pass(), _pass()), (_pass(),), num_loops=3, loop_period=2)
    assert _walked(work) == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 0)]
    assert _walked(_work((_pass(),), ())) == [(0, 0)]


def test_passes_that_end_the_loop_are_walked_as_themselves():
    """Evaluate, train, evaluate, train, evaluate: passes 2 is never walked, so not traced."""
    evaluation, training = _pass("valid"), _pass(shuffle=True)
    work = _work((evaluation,), (training, evaluation), num_loops=3, loop_period=2)
    assert _walked(work) == [(0, 0), (1, 0), (0, 0), (1, 1), (0, 0), (1, 0), (0, 0)]


@pytest.mark.parametrize("draws", [{"shuffle": True}, {"training": True}, {"max_examples": 2}])
def test_passes_that_draw_have_a_number_each(draws):
    drawing = _pass(**draws)
    assert _walked(_work((drawing,), (drawing,), num_loops=1)) == [(0, 0), (1, 0)]
