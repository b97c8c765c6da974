"""Prose, much of it about keys, tokens and passwords, and what looks like a format and is none."""

import words
from negative_code import css_class, noun, number, pascal, sensitive, sentence, snake, verb
from negative_data import version
from secret import some


def clause(r):
    return " ".join(r.choice(words.PROSE) for _ in range(r.randint(4, 14)))


def prose(r):
    s = sensitive(r).replace("_", " ")
    return r.choice(
        [
            f"{clause(r).capitalize()}, {clause(r)}.", f"{clause(r).capitalize()}. {clause(r).capitalize()}.", f"{r.choice(words.PEOPLE).title()}: {clause(r)}?", f"- {clause(r)}; {clause(r)}",
            f"The {noun(r)} {verb(r)}s the {noun(r)} {clause(r)} — {clause(r)}.", f"\"{clause(r).capitalize()},\" said {r.choice(words.PEOPLE).title()}, \"{clause(r)}.\"", f"{r.randint(1, 12)}. {clause(r).capitalize()} (see {noun(r)} {number(r)}).",
            f"Dear {r.choice(words.PEOPLE).title()}, {clause(r)}. Best, {r.choice(words.PEOPLE).title()}", f"## {clause(r).title()}", f"> {clause(r)}", f"Ich habe den {noun(r).title()} über die {s} gefragt, für {clause(r)}.", f"El {noun(r)} está {clause(r)}; ¿y la contraseña?",
            f"私の{noun(r)}は{noun(r)}です。{clause(r)}", f"Вот {noun(r)}: {clause(r)}", f"Write me a {r.choice(words.ADJECTIVES)} {noun(r)} in {r.choice(words.LANGUAGES)} that {verb(r)}s a {noun(r)}.",
        ]
    )  # fmt: skip


def about(r):
    """Documentation of secrets."""
    n, s = noun(r), sensitive(r)
    p = s.replace("_", " ")
    return r.choice(
        [
            f"Your {p} must have at least {r.randint(8, 16)} characters, with {r.choice(['a digit', 'capitals', 'a sign'])}.", f"Bearer authentication uses the Authorization header: Authorization: Bearer <{n}-token>.",
            f"Basic authentication sends the user's name and password in base64.", f"Basic {n} {noun(r)}s need no {p}.", f"Set `{s}` to the {p} of your {n}; it begins with `{r.choice(['sk-', 'ghp_', 'xoxb-', 'AKIA', 'glpat-', 'hf_', 'gsk_', 'eyJ', 'sk_live_', 'npm_', 'SG.', 'AIza', 'dop_v1_'])}`.",
            f"The token: a {r.choice(words.ADJECTIVES)} {n} that the {noun(r)} {verb(r)}s.", f"password: {r.choice(['required', 'optional', 'string', 'must not be empty', 'see below', 'the same as before'])}", f"| `{s}` | string | {sentence(r)} |",
            f"Rotate the {p} each {r.randint(7, 90)} days: {clause(r)}.", f"If you forgot your password, {clause(r)}.", f"Secret: {clause(r)}.", f"The {p} is stored as a hash (argon2id, {r.randint(16, 64)} MiB).", f"Pass --{s.replace('_', '-')} or set {n.upper()}_{s.upper()}.",
            f"An API key looks like sk-{'x' * r.randint(3, 48)}.", f"Tokens per second: {number(r)}; tokens in all: {number(r)}.", f"token={sentence(r).split()[0]}", f"`Authorization: Basic <base64 of user:password>`", f"401 invalid_{s}: the {p} provided is invalid or expired.",
            f"Private keys begin with -----BEGIN PRIVATE KEY----- and end with -----END PRIVATE KEY-----.", f"-----BEGIN RSA PRIVATE KEY-----\n...\n-----END RSA PRIVATE KEY-----", f"It prints AKIA followed by sixteen characters.", f"A bearer of {clause(r)}", f"The secret of {n} is {clause(r)}.",
            f"Use `{n} login --password-stdin`, never `--password`.", f"Your {p} was changed {r.randint(1, 59)} minutes ago from {noun(r).title()}.", f"key: {noun(r)}, value: {number(r)}", f"secret_name: {n}/{noun(r)}/{verb(r)}", f"the session token's lifetime is {number(r)} seconds",
            f"Authorization: Digest username=\"{n}\", realm=\"{noun(r)}\", nonce=\"{some(r, 'hex', 12)}\"", f"x-api-key: <{n} key>", f"connect with postgres://user:password@host:5432/{n}", f"Never commit {p}s: add .env to .gitignore ({clause(r)}).",
        ]
    )  # fmt: skip


def alike(r):
    """A known prefix, and no secret after it."""
    n = noun(r)
    return r.choice(
        [
            f"sk-{n}-{noun(r)}-{r.randint(1, 9)}", f"hf_{snake(r)}_{noun(r)}", f"npm_config_{snake(r)}={verb(r)}", f"key_{snake(r)}: {number(r)}", f"live_{snake(r)}=true", f"test_{snake(r)}_{noun(r)}_{verb(r)} ... ok", f"re_{snake(r)} = re.compile('{n}')", f"pat.{verb(r)}({n})",
            f"SK_{n.upper()}", f"SG.{n}.{noun(r)}", f"api_{snake(r)}.{noun(r)}", f"secret-{n}-{noun(r)}-{noun(r)}", f"secret_{snake(r)}_manager", f"sdk-{n}-{version(r)}", f"p.{n}.{noun(r)}", f"sl.{snake(r)}(.{n})", f"cu_{snake(r)}", f"fw_{n}_version_{version(r)}", f"rnd_{snake(r)} = random()",
            f"as-{n}-{noun(r)}-{noun(r)}-{verb(r)}", f"access-{noun(r)}-{n}", f"m0-{n}", f"fc-{n}-{noun(r)}", f"MT{n.upper()}.{noun(r)}.{verb(r)}", f"dp.{n}.{noun(r)}({number(r)})", f"t1.{n} = t2.{noun(r)}", f"AAAA{some(r, 'b62', 12)}", f"EAA{some(r, 'b62', 9)}", f"AKIA{n.upper()}", f"LTAI {n}",
            f"task-{n}-{some(r, 'hex', 24)}", f"disk-{some(r, 'hex', 32)}", f"risk-{some(r, 'b62', 10)}-{n}", f"basic {snake(r)}", f"Basic{pascal(r)}{r.randint(1, 9)}", f"bearer{pascal(r)}", f"Bearer: {n}", f"machine learning login {n} password reset", f"ops_{snake(r)}", f"cal_{snake(r)}", f"bb_{n}",
            f"API-{n.upper()}-{r.randint(1, 99)}", f"EAAA{n}", f"cio{n}", f"oy2{n}", f"dapi{n}{number(r)}", f"dose {number(r)} mg {n}", f"phc_{n}", f"pul-{n}", f"ico-{n}-{noun(r)}", f"pa-{n}-{noun(r)}-{noun(r)}", f"nsec1 {n}", f"xprv{n}", f"v1.0-{some(r, 'hex', 7)}", f"lin_{n}", f"tfp_{n}",
            f"ASIA-{n.upper()}", f"ghp_{n}", f"eyJ{some(r, 'b62', 20)}", f"eyJ{some(r, 'b62', 30)}.{n}", f"sq0{n}", f"shpat_{n}", f"whsec_...", f"xoxb-{n}-{noun(r)}", f"hvs.{n}", f"jdbc:{n}:{noun(r)}", f"postgres:{version(r)}-alpine", f"redis:{r.randint(5, 8)}", f"mysql -u root -p {n}", f"class=\"{css_class(r)} {css_class(r)}\"",
            f"connect.sid={n}", f"sessionid={n}", f"sig={n}", f"?sig={some(r, 'hex', 8)}", f"AccountKey={n}", f"PrivateKey = {n}", f"privateKey: {pascal(r)}Key", f"private_key_path = \"{n}.pem\"", f"8Q~{n}", f":AAE{n}", f".atlasv1.{n}", f"_authToken={n}", f"SharedAccessKey={n}", f"AQE{n}", f"TEST-{number(r)}",
        ]
    )  # fmt: skip
