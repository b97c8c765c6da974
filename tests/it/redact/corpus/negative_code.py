"""Ordinary code that is no secret, much of it about secrets."""

import words
from secret import some


def noun(r):
    return r.choice(words.NOUNS)


def verb(r):
    return r.choice(words.VERBS)


def snake(r, least=1, most=3):
    return "_".join(r.choice([noun, verb])(r) for _ in range(r.randint(least, most)))


def camel(r, least=1, most=3):
    text = pascal(r, least, most)
    return text[0].lower() + text[1:]


def pascal(r, least=1, most=3):
    return "".join(r.choice([noun, verb])(r).title() for _ in range(r.randint(least, most)))


def number(r):
    return str(r.choice([r.randint(0, 9), r.randint(10, 4096), r.randint(5000, 10**9)]))


def sensitive(r):
    """A name that tells of a secret."""
    return r.choice(
        "password passwd token secret api_key apiKey access_token refresh_token client_secret private_key "
        "auth_token secretKey accessKey credentials session_token csrf_token passphrase signing_key".split()
    )


def harmless(r):
    """What is assigned to such a name in code: no secret."""
    n = noun(r)
    return r.choice(
        [
            f"get_{n}()", f"os.environ['{n.upper()}_TOKEN']", f'os.getenv("{n.upper()}_SECRET")', "None", "null", '""',
            f"config.{n}.token", f"request.headers.get('X-{n.title()}')", f"self.{n}_key", f"process.env.{n.upper()}_KEY",
            "undefined", f"{n}Token", f"decrypt({n})", f"vault.read('{n}/data')", f"await fetch{n.title()}Token()", "String",
            "Option<String>", "str", "True", f"{pascal(r)}.{camel(r)}", f"&{n}[..{number(r)}]", f"generate_{n}(32)",
            f"input('{n}: ')", f"Some({n})", f"args.{n}", f"params[:{n}]", f'env!("{n.upper()}")', f"new {pascal(r)}()",
            f"hash({n}, salt)", f"crypto.randomBytes({r.choice([16, 24, 32])})", f"${{{n.upper()}}}", f"$({verb(r)} {n})",
        ]
    )  # fmt: skip


def rust(r):
    n, f, t = noun(r), snake(r), pascal(r)
    return r.choice(
        [
            f"pub fn {f}({n}: &{t}, {noun(r)}: usize) -> Result<{pascal(r)}, {t}Error> {{",
            f"    let {snake(r)} = {n}.{f}().await?;",
            f"    let {sensitive(r)}: Option<String> = {harmless(r)};",
            f"impl<'a> {t}<'a> for {pascal(r)} {{",
            f"    // {sentence(r)}",
            f"    assert_eq!({f}(&{n}), {number(r)}, \"{sentence(r)}\");",
            f"use crate::{n}::{{{pascal(r)}, {t}, {snake(r)}}};",
            f"    .filter(|{n}| {n}.{snake(r, 1, 1)} > {number(r)})",
            f"#[derive(Debug, Clone, PartialEq, Eq, {r.choice(['Hash', 'Default', 'Serialize'])})]",
            f"const MAX_{n.upper()}_{noun(r).upper()}: usize = {number(r)};",
            f"    {sensitive(r)}: SecretString,",
            f"    Err({t}Error::{pascal(r)}({n})) => return Err({n}.into()),",
            f"mod {n};\npub use {n}::{t};",
            f"    /// The {sensitive(r)} of the {n}; see [`{t}::{f}`].",
            f"    tracing::{r.choice(['info', 'warn', 'debug'])}!({n} = %self.{n}, \"{sentence(r)}\");",
        ]
    )


def sentence(r):
    count = r.randint(3, 12)
    return " ".join(r.choice(words.PROSE) for _ in range(count)).capitalize()


def python(r):
    n, f, t = noun(r), snake(r), pascal(r)
    return r.choice(
        [
            f"def {f}(self, {n}, *, {noun(r)}=None, **kwargs):",
            f"    {sensitive(r)} = {harmless(r)}",
            f'    """{sentence(r)}.\n\n    :param {n}: {sentence(r)}\n    :return: {sentence(r)}\n    """',
            f"from {n}.{noun(r)} import {t}, {f}",
            f"    if not {n}.{f}({noun(r)}) and {noun(r)}[{number(r)}:] == '{verb(r)}':",
            f"        raise {t}Error(f\"{sentence(r)}: {{{n}!r}}\")",
            f"@{n}.route('/{noun(r)}/<int:{noun(r)}_id>', methods=['GET', 'POST'])",
            f"    return {{'{n}': {noun(r)}, '{sensitive(r)}': mask({noun(r)})}}",
            f"    parser.add_argument('--{sensitive(r).replace('_', '-')}', help='{sentence(r)}')",
            f"{n} = re.compile(r'^[A-Za-z0-9_-]{{{r.randint(8, 20)},{r.randint(30, 64)}}}$')",
            f"    assert client.{sensitive(r)} == {harmless(r)}",
            f"    headers = {{'Authorization': f'Bearer {{{n}}}', 'Accept': 'application/json'}}",
            f"    session.headers.update({{\"Authorization\": \"Bearer \" + {n}}})",
            f"    engine = create_engine(f\"postgresql://{{user}}:{{password}}@{{host}}/{{{n}}}\")",
            f"    {n} = [{f}(x) for x in {noun(r)}s if x.{noun(r)} >= {number(r)}]",
        ]
    )


def script(r):
    n, f, t = noun(r), camel(r), pascal(r)
    return r.choice(
        [
            f"export async function {f}({n}: {t}): Promise<{pascal(r)}[]> {{",
            f"  const {{ {n}, {sensitive(r)} }} = {harmless(r)};",
            f"import {{ {t}, {f} }} from '@{n}/{noun(r)}-{verb(r)}';",
            f"  if (!{n}?.{f}) throw new Error(`{sentence(r)} ${{{n}}}`);",
            f"  return res.status({r.choice([200, 201, 400, 401, 403, 404, 500])}).json({{ {n}: '{verb(r)}' }});",
            f"  headers: {{ Authorization: `Bearer ${{{sensitive(r)}}}`, 'x-api-key': {harmless(r)} }},",
            f"  const {f} = useMemo(() => {n}.map(({noun(r)[0]}) => {noun(r)[0]}.{noun(r)}), [{n}]);",
            f"/** @type {{import('{n}').{t}}} */",
            f"  <{t} {n}={{{f}}} onClick={{() => {camel(r)}({number(r)})}} className=\"{css_class(r)} {css_class(r)}\" />",
            f"  expect(screen.getByText('{sentence(r)}')).toBeInTheDocument();",
            f"  router.{r.choice(['get', 'post', 'put'])}('/{n}/:id/{noun(r)}', authenticate, {f});",
            f"  type {t} = {{ {sensitive(r)}?: string; {n}: number | null }};",
            f"  localStorage.setItem('{n}-{sensitive(r)}', {harmless(r)});",
            f"  // {sentence(r)}",
            f"!function(e,t){{var n=t.{f}||{number(r)};e.{camel(r)}=function(r){{return r.{n}(n)}}}}(this,{t});",
        ]
    )


def css_class(r):
    return r.choice(
        [
            f"sk-{noun(r)}-{noun(r)}{r.randint(1, 12)}", f"{noun(r)}-{noun(r)}--{verb(r)}", f"md-{noun(r)}-{r.randint(1, 12)}",
            f"pa-{r.randint(1, 9)}", f"fc-{noun(r)}-{noun(r)}-button", f"key-{noun(r)}", f"mt-{r.randint(1, 12)}", "sk-fading-circle",
            f"as-{noun(r)}-{noun(r)}", f"fw-{r.choice(['bold', 'semibold'])}", f"{noun(r)}_{some(r, 'b62', 5)}__{some(r, 'b62', 5)}",
        ]
    )  # fmt: skip


def style(r):
    n = css_class(r)
    return r.choice(
        [
            f".{n} {{ margin: {number(r)[:2]}px auto; color: #{some(r, 'hex', 6)}; }}",
            f".{n}:hover > .{css_class(r)}::after {{ content: '\\{some(r, 'hex', 4)}'; }}",
            f"@media (min-width: {r.randint(320, 1920)}px) {{ .{n} {{ display: {r.choice(['flex', 'grid', 'none'])}; }} }}",
            f"  background: url(/static/{noun(r)}.{some(r, 'hex', 8)}.{r.choice(['png', 'svg', 'woff2'])}) no-repeat;",
            f"  --{n}: calc({r.randint(1, 99)}% - var(--{css_class(r)}));",
            f"  transition: {r.choice(['opacity', 'transform'])} .{r.randint(1, 9)}s cubic-bezier(.{r.randint(1, 9)},0,.2,1);",
            f"  <div class=\"{n} {css_class(r)}\" id=\"{noun(r)}-{number(r)}\"><span>{sentence(r)}</span></div>",
            f"  <input type=\"password\" name=\"{sensitive(r)}\" placeholder=\"{sentence(r)}\" autocomplete=\"off\" />",
            f"  <a href=\"/{noun(r)}/{noun(r)}#{css_class(r)}\" title=\"{sentence(r)}\">{sentence(r)}</a>",
            f"  <meta name=\"csrf-param\" content=\"authenticity_token\" /><link rel=\"stylesheet\" href=\"/{n}.css\">",
        ]
    )


def compiled(r):
    """Go, Java, C."""
    n, f, t = noun(r), camel(r), pascal(r)
    return r.choice(
        [
            f"func (s *{t}) {pascal(r)}(ctx context.Context, {n} string) ({pascal(r)}, error) {{",
            f"\tif err := s.{n}.{pascal(r)}(ctx); err != nil {{\n\t\treturn nil, fmt.Errorf(\"{verb(r)} {n}: %w\", err)\n\t}}",
            f"\t{sensitive(r)} := {harmless(r)}",
            f"    private final {t} {f} = new {pascal(r)}<>({number(r)});",
            f"    @Value(\"${{{n}.{noun(r)}.{sensitive(r)}}}\")\n    private String {f};",
            f"    public static final String {n.upper()}_KEY = \"{n}.{noun(r)}.{verb(r)}\";",
            f"static int {snake(r)}(struct {n} *{n[0]}, size_t len, uint{r.choice([8, 16, 32, 64])}_t flags)",
            f"#define {snake(r).upper()} 0x{some(r, 'hex', r.choice([2, 4, 8, 16]))}u",
            f"    memcpy({n}->{noun(r)}, \"{some(r, 'hex', 8)}\", sizeof({n}->{noun(r)}));",
            f"    throw new {t}Exception(\"{sentence(r)}\", {f});",
            f"    0x{some(r, 'hex', 2)}, 0x{some(r, 'hex', 2)}, 0x{some(r, 'hex', 2)}, 0x{some(r, 'hex', 2)}, 0x{some(r, 'hex', 2)},",
            f"    log.{r.choice(['info', 'warn', 'error'])}(\"{sentence(r)} {{}} {{}}\", {f}, {n});",
            f"import (\n\t\"context\"\n\t\"github.com/{n}/{noun(r)}/{verb(r)}\"\n)",
        ]
    )


def sql(r):
    n = noun(r)
    return r.choice(
        [
            f"SELECT {n}.id, {noun(r)}_at, count(*) FROM {n}s AS {n} JOIN {noun(r)}s USING ({noun(r)}_id) WHERE {noun(r)} > {number(r)};",
            f"INSERT INTO {n}s (id, {noun(r)}, created_at) VALUES ('{uuid(r)}', {number(r)}, now());",
            f"CREATE UNIQUE INDEX CONCURRENTLY {n}_{noun(r)}_idx ON {n}s USING btree ({noun(r)}, lower({noun(r)}));",
            f"ALTER TABLE {n}s ADD COLUMN {sensitive(r)}_hash bytea NOT NULL DEFAULT '\\x{some(r, 'hex', 32)}';",
            f"UPDATE {n}s SET {sensitive(r)} = crypt($1, gen_salt('bf')) WHERE id = $2 RETURNING *;",
            f"-- {sentence(r)}",
            f"GRANT SELECT, INSERT ON {n}s TO {noun(r)}_reader; -- no password here",
            f"CREATE ROLE {n} LOGIN PASSWORD :'{sensitive(r)}';",
            f"  {noun(r)} varchar({r.randint(8, 255)}) REFERENCES {n}s (id) ON DELETE {r.choice(['CASCADE', 'SET NULL'])},",
        ]
    )


def uuid(r):
    return "-".join(some(r, "hex", n) for n in (8, 4, 4, 4, 12))
