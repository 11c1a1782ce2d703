"""Tests sending with real servers on loopback."""

import logging
import socket

import pytest
import webhook

from tfx_distribute.pipelines.notify import sending
from tfx_distribute.pipelines.notify.message import Message

MESSAGE = Message("taxi: failed", "reason: <b> & \\n {{x}}\nhost: train-1", is_good=False)


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_a_webhook_gets_the_message():
    with webhook.receiving() as receiver:
        assert sending.send(MESSAGE, [receiver.address]) == []
    (received,) = receiver.messages
    assert (received["title"], received["message"], received["type"]) == (MESSAGE.title, MESSAGE.body, "failure")


def test_a_mail_server_gets_the_message():
    with webhook.receiving_mail() as (port, mails):
        address = f"mailto://127.0.0.1:{port}?from=runs@example.com&to=us@example.com&mode=insecure"
        assert sending.send(MESSAGE, [address]) == []
    assert "Subject: taxi: failed" in mails[0]
    assert "text/plain" in mails[0]


def test_each_failure_is_named_without_secrets(monkeypatch, capfd):
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(f"{record.name} {record.getMessage()}")
    monkeypatch.setattr(logging.root, "handlers", [handler])
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    with webhook.receiving() as receiver, webhook.receiving() as refusing:
        refusing.status = 403
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        addresses = [
            receiver.address,
            refusing.address,
            f"json://someone:s3cret@127.0.0.1:{port}/t0ken",
            "nosuch://s3cret/t0ken",
            "tgram://s3cret",
            "s3cret",
        ]
        failures = sending.send(MESSAGE, addresses)
    assert len(receiver.messages) == 1, "the others do not keep it from being sent"
    assert failures == [
        "json://127.0.0.1: Failed to send JSON POST notification: error=403.",
        "json://127.0.0.1: A Connection error occurred sending JSON notification to 127.0.0.1.",
        "nosuch: apprise cannot use this address",
        "tgram: apprise cannot use this address",
        "an address without a scheme: apprise cannot use this address",
    ]
    shown = "".join([*failures, *logged, *capfd.readouterr()])
    assert not [secret for secret in ("s3cret", "t0ken", "k3yk3y", "someone") if secret in shown]


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("jsons://user:secret@hooks.example.com:8443/token", "jsons://hooks.example.com"),
        ("mailtos://user:secret@gmail.com", "mailtos://gmail.com"),
        ("tgram://123456789:abcdefg_hijklmnop/12315544/", "tgram"),
        ("discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js", "discord"),
        ("https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ", "https"),
        ("ntfy://topic", "ntfy"),
        ("json://[::1", "json"),
    ],
)
def test_addresses_are_shown_without_secrets(address, shown):
    assert sending.describe_address(address) == shown


def test_a_part_of_an_address_is_hidden_in_a_reason():
    hidden = sending._hide_parts("no chat T0KEN at host.example", "x://u:pass@host.example/t0ken", "x://host.example")
    assert hidden == "no chat **** at host.example"


def test_addresses_are_separated_by_space(monkeypatch):
    monkeypatch.setenv("ADDRESSES", " json://a.example\n\tjson://b.example ")
    assert sending.read_addresses("ADDRESSES") == ["json://a.example", "json://b.example"]
    assert sending.describe_missing("ADDRESSES") == ""
    monkeypatch.setenv("ADDRESSES", "\n")
    assert "the environment variable ADDRESSES is not set" in sending.describe_missing("ADDRESSES")
