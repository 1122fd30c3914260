"""Asks the kernel whether it would deliver packets for an address to this machine itself (rtnetlink(7)).

A routing table can make any address local, without an interface that has it.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from sandbox_console.egress.addresses import Address, plain

_GET_ROUTE, _REQUEST, _ERROR, _DESTINATION = 26, 1, 2, 1
"""RTM_GETROUTE, NLM_F_REQUEST, NLMSG_ERROR and RTA_DST (linux/rtnetlink.h, linux/netlink.h)."""
_ELSEWHERE = (None, 1, 6, 7, 8)
"""No route, or RTN_UNICAST to RTN_PROHIBIT, which lead to another machine or nowhere. Local and anycast have others."""
_HEADER, _ROUTE = struct.Struct("=IHHII"), struct.Struct("=8BI")
_NO_ROUTE = frozenset(
    (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL, errno.EAFNOSUPPORT, errno.EOPNOTSUPP)
)
"""The kernel's answers if packets for an address go nowhere. A connection fails with the same."""
_WAIT_S = 2.0


def stays_here(address: Address) -> bool:
    """Whether a connection to an address may stay on this machine. If the kernel cannot be asked, it may."""
    try:
        return any(_type(one) not in _ELSEWHERE for one in {address, plain(address)})
    except (OSError, struct.error):
        return True


def _type(address: Address) -> int | None:
    """The type of the route to an address, or None if there is no route."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    attribute = struct.pack("=HH", 4 + len(address.packed), _DESTINATION) + address.packed
    body = _ROUTE.pack(family, address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0) + attribute
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as sock:
        sock.settimeout(_WAIT_S)
        sock.sendto(_HEADER.pack(_HEADER.size + len(body), _GET_ROUTE, _REQUEST, 1, 0) + body, (0, 0))
        answer = sock.recv(1 << 16)
    kind = _HEADER.unpack_from(answer)[1]
    if kind == _ERROR:
        code = -int(struct.unpack_from("=i", answer, _HEADER.size)[0])
        if code in _NO_ROUTE:
            return None
        raise OSError(code, os.strerror(code))
    return int(_ROUTE.unpack_from(answer, _HEADER.size)[7])
