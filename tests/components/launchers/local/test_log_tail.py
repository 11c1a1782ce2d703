from tfx_distribute.components.launchers.local import log_tail


def test_last_lines_of_a_long_log(tmp_path):
    log = tmp_path / "log"
    assert log_tail.last_lines(log) == []
    lines = [f"line {number} of the log" for number in range(100_000)]
    log.write_text("\n".join(lines) + "\n\n")
    assert log_tail.last_lines(log) == lines[-log_tail.LAST_LINES :]
