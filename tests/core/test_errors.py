from motley_tff.core import errors


def test_a_message_is_one_line_and_moves_no_cursor():
    error = errors.UserError("client \x1b[2Ja\rb:\n  found nothing;\ngive data")
    assert str(error) == "client  [2Ja b: found nothing; give data"
