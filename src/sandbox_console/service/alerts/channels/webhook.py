"""Posts messages to a web address, signed as Standard Webhooks does (https://www.standardwebhooks.com)."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import time

import aiohttp

from sandbox_console.errors import ConsoleError
from sandbox_console.model.alert import AlertMessage
from sandbox_console.service.alert_options import AlertChannel
from sandbox_console.service.alerts.channels import message_json
from sandbox_console.service.alerts.channels.channel import NotDelivered, Reveal
from sandbox_console.version import __version__

_MOST_WAIT_S = 3600.0


async def send(channel: AlertChannel, message: AlertMessage, reveal: Reveal) -> None:
    """Post a message. Any answer of 2xx means that it arrived; a redirect does not. Raises NotDelivered."""
    url = channel.url or await reveal(channel.url_secret)
    data = message_json.body(message, channel.shape)
    headers = {"Content-Type": "application/json", "User-Agent": f"sandbox-console/{__version__}"}
    headers |= {"webhook-id": message.id, "webhook-timestamp": str(int(time.time()))}
    if channel.key:
        key = _key(await reveal(channel.key))
        headers["webhook-signature"] = signature(key, message.id, headers["webhook-timestamp"], data)
    timeout = aiohttp.ClientTimeout(total=channel.timeout_s)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=True) as session,
            session.post(url, data=data, headers=headers, allow_redirects=False) as answer,
        ):
            if not 200 <= answer.status < 300:
                raise NotDelivered(f"it answered {answer.status}", again_s=_wait(answer.headers.get("Retry-After", "")))
    except TimeoutError:
        raise NotDelivered(f"no answer within {channel.timeout_s:g} s") from None
    except (aiohttp.InvalidURL, ValueError):  # the text of which has the address, which may be a secret
        raise NotDelivered("its address is not a web address") from None
    except aiohttp.ClientConnectorError as error:
        raise NotDelivered(
            f"it cannot be reached: {error.os_error.strerror or type(error.os_error).__name__}"
        ) from None
    except (aiohttp.ClientError, OSError) as error:
        raise NotDelivered(f"it cannot be reached: {type(error).__name__}") from None


def signature(key: bytes, id_: str, timestamp: str, data: bytes) -> str:
    """The value of ``webhook-signature``: version 1 is HMAC-SHA256 over id, time and body, in Base64."""
    digest = hmac.new(key, f"{id_}.{timestamp}.".encode() + data, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def _key(secret: str) -> bytes:
    """The bytes of a key: Base64 after ``whsec_``, as receivers give it; any other text as it is."""
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise ConsoleError("the webhook's key begins with whsec_, but what follows is not Base64") from None


def _wait(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        return min(max(float(text), 0.0), _MOST_WAIT_S)
    return None
