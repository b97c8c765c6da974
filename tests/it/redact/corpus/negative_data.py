"""Data that looks random and is no secret: identifiers, hashes, images, logs, configuration with placeholders."""

import base64

import words
from negative_code import css_class, noun, number, pascal, sensitive, sentence, snake, uuid, verb
from secret import some


def stamp(r):
    return f"20{r.randint(20, 29)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}T{r.randint(0, 23):02}:{r.randint(0, 59):02}:{r.randint(0, 59):02}.{r.randint(0, 999):03}Z"


def address(r):
    return ".".join(str(r.randint(1, 254)) for _ in range(4))


def version(r):
    return f"{r.randint(0, 24)}.{r.randint(0, 40)}.{r.randint(0, 90)}"


def lock(r):
    n = f"{noun(r)}-{noun(r)}"
    return r.choice(
        [
            f'      "integrity": "sha512-{some(r, "b64s", 86)}==",',
            f'      "resolved": "https://registry.npmjs.org/{n}/-/{n}-{version(r)}.tgz",',
            f'checksum = "{some(r, "hex", 64)}"',
            f"github.com/{noun(r)}/{n} v{version(r)} h1:{some(r, 'b64s', 43)}=",
            f"github.com/{noun(r)}/{n} v0.0.0-20{r.randint(20, 26)}0{r.randint(1, 9)}{r.randint(10, 28)}{r.randint(100000, 235959)}-{some(r, 'hex', 12)}/go.mod h1:{some(r, 'b64s', 43)}=",
            f"    --hash=sha256:{some(r, 'hex', 64)} \\",
            f'  resolution: "{n}@npm:{version(r)}"\n  checksum: 10c0/{some(r, "hex", 128)}',
            f'    "narHash": "sha256-{some(r, "b64s", 43)}=",',
            f'    {{file = "{n}-{version(r)}-py3-none-any.whl", hash = "sha256:{some(r, "hex", 64)}"}},',
            f"  /{n}/{version(r)}:\n    resolution: {{integrity: sha512-{some(r, 'b64s', 86)}==}}\n    engines: {{node: '>={r.randint(10, 22)}'}}",
            f'source = "registry+https://github.com/rust-lang/crates.io-index"\nname = "{n}"',
            f"FROM {noun(r)}/{n}:{version(r)}@sha256:{some(r, 'hex', 64)}",
        ]
    )


def hashes(r):
    return r.choice(
        [
            f"{some(r, 'hex', 40)} {sentence(r)}", f"{some(r, 'hex', 64)}  dist/{noun(r)}-{version(r)}.tar.gz",
            f"{some(r, 'hex', 32)} *{noun(r)}.iso", f"commit {some(r, 'hex', 40)}", f"index {some(r, 'hex', 7)}..{some(r, 'hex', 7)} 100644",
            f"etag: W/\"{some(r, 'hex', 32)}\"", f"id={uuid(r)}", f"  \"request_id\": \"{uuid(r)}\",", f"urn:uuid:{uuid(r).upper()}",
            f"sha256:{some(r, 'hex', 64)}", f"req_{some(r, 'b62', 24)} took {number(r)} ms", f"chatcmpl-{some(r, 'b62', 29)}",
            f"msg_01{some(r, 'b62', 22)}", f"call_{some(r, 'b62', 24)}", f"toolu_01{some(r, 'b62', 22)}", f"resp_{some(r, 'hex', 48)}",
            f"pi_{some(r, 'b62', 24)} cus_{some(r, 'b62', 14)} price_1{some(r, 'b62', 23)}", f"traceparent: 00-{some(r, 'hex', 32)}-{some(r, 'hex', 16)}-01",
            f"01{some(r, 'up', 24)}", f"x-amz-request-id: {some(r, 'up', 16)}", f"x-amz-id-2: {some(r, 'b64s', 74)}==",
            f"arn:aws:iam::{some(r, 'd', 12)}:role/{noun(r)}-{verb(r)}", f"i-0{some(r, 'hex', 16)} vpc-{some(r, 'hex', 8)} sg-{some(r, 'hex', 17)}",
            f"AGPA{some(r, 'b32', 16)} AROA{some(r, 'b32', 16)}", f"pod/{noun(r)}-{some(r, 'hex', 10)}-{some(r, 'lo', 5)} 1/1 Running",
            f"0x{some(r, 'hex', 40)} -> 0x{some(r, 'hex', 64)}", f"Qm{some(r, 'b58', 44)}", f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{some(r, 'b64s', 43)} {noun(r)}@host",
            f"SHA256:{some(r, 'b64s', 43)} {noun(r)}@{noun(r)} (ED25519)", f"Content-MD5: {some(r, 'b64s', 22)}==", f"blake3-{some(r, 'hex', 64)}",
            f"device {some(r, 'up', 12)} serial C{some(r, 'up', 11)}", f"pk_live_{some(r, 'b62', 24)}", f"gclid={some(r, 'b64u', 60)}",
            f"AC{some(r, 'hex', 32)}", f"aks-nodepool1-{some(r, 'd', 8)}-vmss{some(r, 'd', 6)}   Ready   agent   {r.randint(1, 90)}d   v{version(r)}",
            f"aks-{noun(r)}-{some(r, 'd', 8)}-vmss00000{some(r, 'lo', 1)}", f"{number(r)}:AA", f"asst_{some(r, 'b62', 24)} thread_{some(r, 'b62', 24)}",
        ]
    )  # fmt: skip


def images(r):
    raw = base64.b64encode(bytes(r.getrandbits(8) for _ in range(r.choice([57, 57, 120, 180])))).decode()
    return r.choice(
        [
            f"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA{raw}", raw, raw, f'"image_url": {{"url": "data:image/jpeg;base64,/9j/4AAQSkZJRgABAQ{raw}"}}',
            f"  src: url(data:font/woff2;base64,d09GMgABAAAAA{raw}) format('woff2');", f"<img alt='' src=\"data:image/gif;base64,R0lGODlh{raw}\">",
            f"//# sourceMappingURL=data:application/json;base64,eyJ2ZXJzaW9uIjozLCJmaWxl{raw}", f'"mappings": "{";".join("AA" + some(r, "b62", r.randint(2, 8)) for _ in range(9))}"',
            f"-----BEGIN CERTIFICATE-----\nMIID{some(r, 'b64s', 60)}\n{some(r, 'b64s', 64)}\n-----END CERTIFICATE-----",
            f"-----BEGIN PUBLIC KEY-----\nMIIB{some(r, 'b64s', 60)}\n{some(r, 'b64s', 32)}\n-----END PUBLIC KEY-----", f"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQ{some(r, 'b64s', 120)} {noun(r)}",
            f"certificate-authority-data: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1J{raw}", f"script-src 'sha256-{some(r, 'b64s', 43)}=' 'nonce-{some(r, 'b64s', 22)}=='",
            f"-----BEGIN PGP SIGNATURE-----\n\niQIz{some(r, 'b64s', 60)}\n={some(r, 'b64s', 4)}\n-----END PGP SIGNATURE-----",
        ]
    )  # fmt: skip


def logs(r):
    n = noun(r)
    return r.choice(
        [
            f'{address(r)} - - [{r.randint(1, 28):02}/Mar/2026:10:{r.randint(10, 59)}:{r.randint(10, 59)} +0000] "GET /{n}/{number(r)}?page={r.randint(1, 99)} HTTP/1.1" {r.choice([200, 304, 404])} {number(r)} "-" "Mozilla/5.0 (X11; Linux x86_64)"',
            f"{stamp(r)} {r.choice(['INFO', 'WARN', 'ERROR', 'DEBUG'])} [{n}-{r.randint(1, 32)}] {snake(r)}: {sentence(r)} in {number(r)}ms",
            f'{{"ts":"{stamp(r)}","level":"info","msg":"{sentence(r)}","{n}_id":"{uuid(r)}","trace_id":"{some(r, "hex", 32)}","span_id":"{some(r, "hex", 16)}"}}',
            f"Mar {r.randint(1, 28)} 10:{r.randint(10, 59)}:{r.randint(10, 59)} {n} sshd[{number(r)}]: Accepted publickey for {noun(r)} from {address(r)} port {r.randint(1024, 65535)} ssh2: ED25519 SHA256:{some(r, 'b64s', 43)}",
            f"{stamp(r)} auth: token expired for user={n} jti={uuid(r)} reason=\"{sentence(r)}\"",
            f"thread 'main' ({number(r)}) panicked at src/{n}/{noun(r)}.rs:{r.randint(1, 400)}:{r.randint(1, 80)}:\n{sentence(r)}",
            f'  File "/usr/lib/python3/{n}/{noun(r)}.py", line {number(r)}, in {snake(r)}\n    {snake(r)}({noun(r)}, key={noun(r)})',
            f"    at {pascal(r)}.{verb(r)} (/app/dist/{n}-{some(r, 'b62', 8)}.js:{number(r)}:{r.randint(1, 99)})",
            f"level=warn component={n} err=\"{verb(r)} {noun(r)}: 401 Unauthorized: invalid token\" attempt={r.randint(1, 9)}",
            f"password check failed for {n}: {r.randint(1, 5)} tries left",
            f"api_key_id={uuid(r)} tokens_in={number(r)} tokens_out={number(r)} cost_usd=0.00{some(r, 'd', 4)}",
            f"{n}_requests_total{{method=\"{verb(r)}\",code=\"{r.choice([200, 429, 500])}\"}} {number(r)}",
            f"WWW-Authenticate: Bearer realm=\"{n}\", error=\"invalid_token\", error_description=\"{sentence(r)}\"",
            f"< www-authenticate: Basic realm=\"{n} {noun(r)}\", charset=\"UTF-8\"",
        ]
    )


def placeholder(r):
    n = noun(r).upper()
    return r.choice(
        [
            f"${{{n}_KEY}}", f"$({n}_KEY)", "<your-key-here>", "<password>", "YOUR_API_KEY", "your-api-key", "changeme", "xxxxxxxxxxxxxxxx",
            "********", "...", "***REDACTED***", "[REDACTED:openai-key:0a1b2c3d]", f"{{{{ .Values.{n.lower()}.token }}}}", f"{{{{ secrets.{n}_TOKEN }}}}",
            f"vault:secret/data/{n.lower()}#token", "null", '""', "~", f"arn:aws:secretsmanager:eu-west-1:{some(r, 'd', 12)}:secret:{n.lower()}-{some(r, 'b62', 6)}",
            f"file:///run/secrets/{n.lower()}", f"/etc/{n.lower()}/token", f"env:{n}_TOKEN", "TODO", "sk-...", "sk-xxxxxxxxxxxxxxxxxxxx", "ghp_xxxxxxxxxxxxxxxxxxxx", "AKIA...", "hf_...",
            "sk_test_...", "xoxb-your-token", "glpat-...", "eyJ...", "Bearer <token>", f"%{n}_KEY%", f"@{n}@", "sk-ant-...", "insert token here", "postgres://user:password@localhost:5432/db",
        ]
    )  # fmt: skip


def settings(r):
    n, s = noun(r), sensitive(r)
    return r.choice(
        [
            f"{s.upper()}={placeholder(r)}", f"{s}: {placeholder(r)}", f'  "{s}": "{placeholder(r).strip(chr(34))}",', f'{n}.{s} = "{placeholder(r).strip(chr(34))}"',
            f"  - name: {n.upper()}_{s.upper()}\n    valueFrom:\n      secretKeyRef:\n        name: {n}-{noun(r)}\n        key: {s.replace('_', '-')}",
            f"{n.upper()}_URL=https://{n}.{noun(r)}.{r.choice(words.TLDS)}/{verb(r)}", f"{n.upper()}_TIMEOUT_MS={number(r)}", f"[{n}.{noun(r)}]\n{noun(r)} = {number(r)}",
            f"DATABASE_URL=postgres://{n}:{r.choice(['password', '${DB_PASSWORD}', '<password>', '$PASS', '***'])}@localhost:5432/{noun(r)}",
            f"  image: ghcr.io/{n}/{noun(r)}:{version(r)}\n  ports: [\"{r.randint(1000, 9999)}:{r.randint(1000, 9999)}\"]",
            f"redis_url: redis://{n}:6379/{r.randint(0, 9)}", f"spring.datasource.url=jdbc:postgresql://{n}:5432/{noun(r)}?user={noun(r)}&password=${{{s}}}",
            f"Server={n};Database={noun(r)};User Id=sa;Password={r.choice(['<password>', '{password}', '***', '${P}', 'password'])};", f"max_{s}_length = {r.randint(8, 128)}",
            f"{s}_file: /run/secrets/{n}", f"{s}_ttl: {r.randint(1, 90)}d", f"{s}_path = \"kv/{n}/{noun(r)}\"", f"token_limit = {number(r)}", f"tokens_per_minute = {number(r)}", f"{n}_token_type: bearer",
            f"password_policy: {{min: {r.randint(8, 16)}, upper: true, digits: true}}", f"runner: {{class: {css_class(r)}}}", f"//registry.npmjs.org/:_authToken=${{NPM_TOKEN}}", f"machine {n}.{noun(r)}.test login {noun(r)}",
            f"    env:\n      {n.upper()}_TOKEN: ${{{{ secrets.{n.upper()}_TOKEN }}}}", f"curl -H \"Authorization: Bearer ${n.upper()}_TOKEN\" https://api.{n}.test/v{r.randint(1, 4)}", f"docker run -e {s.upper()} --user 1000:1000 {n}:{version(r)}",
        ]
    )  # fmt: skip


def diffs(r, line):
    a = some(r, "hex", 8)
    return r.choice(
        [
            f"diff --git a/src/{noun(r)}.rs b/src/{noun(r)}.rs\nindex {a}..{some(r, 'hex', 8)} 100644", f"@@ -{r.randint(1, 400)},{r.randint(1, 9)} +{r.randint(1, 400)},{r.randint(1, 9)} @@ fn {snake(r)}()",
            f"-{line(r)}\n+{line(r)}", f"+{line(r)}", f" {line(r)}", f"-  {line(r)}", f"Subproject commit {some(r, 'hex', 40)}",
        ]
    )  # fmt: skip


def urls(r):
    h = f"{noun(r)}.{noun(r)}.{r.choice(words.TLDS)}"
    return r.choice(
        [
            f"https://{h}/{noun(r)}/{uuid(r)}?utm_source={noun(r)}&utm_id={number(r)}", f"http://{h}:{r.randint(80, 9999)}/{noun(r)}", f"https://{h}/@{noun(r)}/{noun(r)}-{some(r, 'hex', 12)}",
            f"git@github.com:{noun(r)}/{noun(r)}.git", f"ssh://git@{h}:22/{noun(r)}.git", f"https://fonts.googleapis.com/css2?family={noun(r).title()}:wght@400;700&display=swap", f"mailto:{noun(r)}@{h}",
            f"https://{h}/a?next=%2F{noun(r)}%2F{some(r, 'hex', 10)}&state={some(r, 'b64u', 8)}", f"postgres://{h}:5432/{noun(r)}", f"redis://{h}:6379", f"amqp://{h}/%2f", f"jdbc:mysql://{h}:3306/{noun(r)}?useSSL=true",
            f"https://{h}:443/x@{version(r)}", f"docker://{noun(r)}:{version(r)}@sha256:{some(r, 'hex', 64)}", f"pkg:npm/%40{noun(r)}/{noun(r)}@{version(r)}", f"https://www.youtube.com/watch?v={some(r, 'b64u', 11)}&t={r.randint(1, 900)}s",
            f"https://cdn.{h}/npm/{noun(r)}@{version(r)}/dist/{noun(r)}.min.js", f"s3://{noun(r)}-{noun(r)}/{stamp(r)[:10]}/{some(r, 'hex', 16)}.parquet", f"mongodb://{h}:27017/{noun(r)}", f"https://docs.{h}/api/authentication#{sensitive(r)}",
            f"https://api.telegram.org/bot<token>/sendMessage", f"https://hooks.slack.com/services/T00000000/⁞B00000000/XXXXXXXXXXXXXXXXXXXXXXXX", f"smb://{h}/{noun(r)}", f"ftp://ftp.{h}/pub/{noun(r)}-{version(r)}.tar.gz",
        ]
    )  # fmt: skip
