"""Sends messages by SMTP."""

from __future__ import annotations

import asyncio
import smtplib
import ssl
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime

from sandbox_console.model.alert import AlertMessage
from sandbox_console.model.text import clean
from sandbox_console.service.alert_options import AlertChannel
from sandbox_console.service.alerts.channels import message_json
from sandbox_console.service.alerts.channels.channel import NotDelivered, Reveal

_PORTS = {"starttls": 587, "tls": 465, "none": 25}
_SUBJECT_MOST = 200


async def send(channel: AlertChannel, message: AlertMessage, reveal: Reveal) -> None:
    """Send a mail. It has arrived once the server took it for at least one recipient. Raises NotDelivered."""
    password = await reveal(channel.password) if channel.password else ""
    try:
        await asyncio.to_thread(_send, channel, mail(channel, message), password)
    except smtplib.SMTPResponseException as error:
        raise NotDelivered(f"the server answered {error.smtp_code}") from None
    except smtplib.SMTPException as error:
        raise NotDelivered(f"the server does not take it: {type(error).__name__}") from None
    except TimeoutError:
        raise NotDelivered(f"no answer within {channel.timeout_s:g} s") from None
    except OSError as error:
        raise NotDelivered(f"the server cannot be reached: {error.strerror or error}") from None


def mail(channel: AlertChannel, message: AlertMessage) -> EmailMessage:
    """The mail of a message. The same message always has the same Message-ID."""
    made = EmailMessage()
    made["From"], made["To"] = channel.sender, ", ".join(channel.recipients)
    made["Subject"] = clean(message.headline, cap=_SUBJECT_MOST)
    made["Date"] = format_datetime(datetime.fromtimestamp(message.at, UTC))
    made["Message-ID"] = f"<{message.id}@{channel.sender.rpartition('@')[2]}>"
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(message_json.text(message))
    return made


def _send(channel: AlertChannel, made: EmailMessage, password: str) -> None:
    host, _, port = channel.server.rpartition(":") if ":" in channel.server else (channel.server, "", "")
    host = host.strip("[]")  # an address of IPv6
    number = int(port) if port else _PORTS[channel.tls]
    secure = ssl.create_default_context()
    server: smtplib.SMTP
    if channel.tls == "tls":
        server = smtplib.SMTP_SSL(host, number, timeout=channel.timeout_s, context=secure)
    else:
        server = smtplib.SMTP(host, number, timeout=channel.timeout_s)
    with server:
        if channel.tls == "starttls":
            server.starttls(context=secure)
        if channel.user:
            server.login(channel.user, password)
        server.send_message(made)
