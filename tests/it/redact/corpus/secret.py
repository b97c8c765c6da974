"""Made-up secrets: fills the templates of `formats.py`, and puts them into ordinary contexts."""

import base64
import json
import re
import string

import words

BREAK = "⁞"
LINE = "⏎"

CLASSES = {
    "b62": string.ascii_letters + string.digits,
    "b64u": string.ascii_letters + string.digits + "_-",
    "b64": string.ascii_letters + string.digits + "+/",
    "b64s": string.ascii_letters + string.digits + "+/",
    "azure": string.ascii_letters + string.digits + "_.~-",
    "letters": string.ascii_letters,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "d": string.digits,
    "up": string.ascii_uppercase + string.digits,
    "lo": string.ascii_lowercase + string.digits,
    "b32": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
    "b32l": "abcdefghijklmnopqrstuvwxyz234567",
    "b58": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
    "bech": "qpzry9x8gf2tvdw0s3jn54khce6mua7l",
    "BECH": "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
}

# What may follow a secret whose class takes in nearly everything is a quote, a blank or nothing.
OPEN = {"jdbc-password", "ado-password", "netrc-password", "putty-private-key"}


def some(r, name, length):
    letters = CLASSES[name]
    text = "".join(r.choice(letters) for _ in range(length))
    # No format's number begins with 0, and its last character is no sign in the documents' ones.
    if name == "azure" and not text[-1].isalnum():
        text = text[:-1] + "k"
    return text


def password(r):
    style = r.randrange(6)
    if style == 0:
        return some(r, "b62", r.randint(10, 32))
    if style == 1:
        return some(r, "b62", r.randint(6, 12)) + r.choice("!^+-_=~,") + some(r, "b62", r.randint(4, 9))
    if style == 2:
        return r.choice(words.NOUNS).title() + r.choice(words.NOUNS) + str(r.randint(10, 9999)) + r.choice("!-_+")
    if style == 3:
        return "-".join(r.choice(words.NOUNS) for _ in range(4))
    if style == 4:
        return some(r, "hex", r.choice([16, 24, 32, 40]))
    return "p" + some(r, "b62", 8) + "%40" + some(r, "b62", 6)


def encoded(data):
    return base64.urlsafe_b64encode(data.encode()).decode().rstrip("=")


def jwt(r):
    header = {"alg": r.choice(["RS256", "ES256", "EdDSA", "HS256"]), "typ": "JWT"}
    if r.random() < 0.5:
        header["kid"] = some(r, "lo", 8)
    body = {"iss": f"https://{r.choice(words.NOUNS)}.test", "sub": some(r, "lo", 10), "exp": r.randint(10**9, 2 * 10**9)}
    if r.random() < 0.5:
        body["tier"] = r.choice(["free", "pro"])
    size = {"RS256": 342, "ES256": 86, "EdDSA": 86, "HS256": 43}[header["alg"]]
    head = encoded(json.dumps(header, separators=(",", ":")))
    return head[:3] + BREAK + head[3:] + "." + encoded(json.dumps(body)) + "." + some(r, "b64u", size)


def pem(r, label, kind):
    line = r.choice([LINE, LINE, "\\n", "\\\\n", "\\r\\n", LINE + "    "])
    width, letters = (32, "hex") if kind == "pemhex" else (64, "b64s")
    parts = [f"-----BEGIN {BREAK}{label}-----"]
    if kind == "pemenc":
        parts += ["Proc-Type: 4,ENCRYPTED", f"DEK-Info: AES-256-CBC,{some(r, 'HEX', 32)}", ""]
    if kind == "pgp":
        parts += r.choice([["Version: GnuPG v2", ""], [""], ["Comment: of no one", ""]])
    parts += [some(r, letters, width) for _ in range(r.randint(2, 5))]
    if kind == "pgp":
        parts += [some(r, "b64s", 20), "=" + some(r, "b64s", 4)]
    elif kind != "pemcut":
        parts += [some(r, letters, r.choice([16, 24, 32])) + ("==" if letters == "b64s" else "")]
    if kind != "pemcut":
        parts += [f"-----END {label}-----"]
    return line.join(parts)


def host(r):
    return r.choice(
        [
            "localhost",
            "127.0.0.1",
            f"db.{r.choice(words.NOUNS)}.internal",
            f"{r.choice(words.NOUNS)}-{some(r, 'lo', 6)}.eu-west-1.rds.amazonaws.com",
            f"10.{r.randint(0, 255)}.{r.randint(0, 255)}.{r.randint(1, 254)}",
        ]
    )


def field(r, name):
    kind, _, argument = name.partition(":")
    if kind == "uuid":
        return "-".join(some(r, "hex", n) for n in (8, 4, 4, 4, 12))
    if kind == "word":
        return r.choice(words.NOUNS)
    if kind == "host":
        return host(r)
    if kind == "password":
        return password(r)
    if kind == "jwt":
        return jwt(r)
    if kind in ("pem", "pemcut", "pemenc", "pemhex", "pgp"):
        return pem(r, argument, kind)
    if kind == "userpass":
        return base64.b64encode(f"{r.choice(words.NOUNS)}:{password(r)}".encode()).decode()
    if kind == "discord":
        return base64.b64encode(str(r.randint(10**17, 10**19 - 1)).encode()).decode().rstrip("=")
    if kind == "wg":
        return some(r, "b64s", 42) + r.choice("AEIMQUYcgkosw048") + "="
    low, _, high = argument.partition("-")
    length = r.randint(int(low), int(high or low))
    if kind == "b64x":
        return some(r, "b64s", length).replace("+", "%2B").replace("/", "%2F")
    if kind == "d":
        return str(r.randint(1, 9)) + some(r, "d", length - 1)
    return some(r, kind, length)


def fill(r, template):
    text = re.sub(r"\{([A-Za-z0-9]+(?::[A-Za-z0-9 -]+)?)\}", lambda found: field(r, found[1]), template)
    return text if "⟦" in text else f"⟦{text}⟧"


# `{}` is the secret, with what belongs to it.
ENDED = [
    'api_key = "{}"', "key: '{}'", 'const KEY = "{}";', "let token = \"{}\".to_owned();",
    '{{"model": "x", "credential": "{}"}}', '{{\\"value\\": \\"{}\\"}}', "export CREDENTIAL={}", "{}", "  value: {}",
    "I pasted `{}` into the form", "client = Client(\"{}\")", '<add key="Credential" value="{}" />',
    "os.environ['CREDENTIAL'] = '{}'", 'resource "x" "y" {{ value = "{}" }}', "+  credential: {}", "-CREDENTIAL={}",
    'println!("{{}}", "{}");', "ARG CREDENTIAL={}", "what is wrong with {} ?", 'log.info("got {}")',
    "| prod | `{}` |", "{}⏎next line of it", "first⏎{}", 'return "{}"', "Key:⏎⏎    {}⏎", 'x := "{}" // of staging',
    "set -x CREDENTIAL '{}'", "echo \"{}\" | tool login --stdin", 'content: "use {}"', "\\n{}\\n", "\\t{}\\r\\n",
]  # fmt: skip
ANY = ENDED + [
    "the key is {}, please rotate it", "use {}.", "({})", "It was {}; now it fails", "old={}, new=none",
    "see {}: it has expired", "[{}]", "<{}>", "credential={}&page=2", "Is it {}?", "{} worked before.",
    "my key ({}) has no quota", "“{}”", "‘{}’ it says", "{}…", "**{}**", "why, {}!", "{}|second|third",
]  # fmt: skip



def positive(r, rule, template):
    secret = fill(r, template)
    cut = "pemcut" in template
    if rule in OPEN or cut:
        contexts = [c for c in ENDED if not cut or re.search(r"\{\}(\\?[\"'`]|$)", c)]
    else:
        contexts = ANY
    return r.choice(contexts).replace("{}", "\0").replace("{{", "{").replace("}}", "}").replace("\0", secret)
