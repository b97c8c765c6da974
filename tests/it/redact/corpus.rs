//! How much of the corpus is found, and how much that is no secret: `corpus/generate.py` makes it.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use tollgate::redact::{Depth, Redactor};

use super::{REDACTOR, hits, marked::Marked};

const LEAST_POSITIVES: usize = 2_000;
const LEAST_NEGATIVES: usize = 20_000;
const MOST_BYTES: u64 = 3 << 20;
/// In percent, of tier 1.
const LEAST_RECALL: f64 = 99.0;
/// False positives, in 10,000 lines.
const MOST_FALSE: f64 = 1.0;
/// Rules and false positives that the report names; all of them count.
const SHOWN: usize = 40;

fn corpus(extension: &str) -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/redact/corpus");
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    paths.sort();
    let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    paths.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// Of one rule.
#[derive(Default)]
struct Recall {
    all: usize,
    /// Found by this rule, to the byte.
    exact: usize,
    /// Covered, by whatever rule.
    covered: usize,
}

struct Report {
    rules: BTreeMap<String, Recall>,
    missed: Vec<String>,
    lines: usize,
    /// By rule: the lines that it found something in.
    wrong: BTreeMap<String, Vec<String>>,
}

impl Report {
    fn of(redactor: &Redactor, depth: Depth) -> Self {
        let mut report =
            Self { rules: BTreeMap::new(), missed: Vec::new(), lines: 0, wrong: BTreeMap::new() };
        for (_, lines) in corpus("tsv") {
            for line in lines.lines() {
                let (rule, text) = line.split_once('\t').unwrap();
                report.add_positive(redactor, depth, rule, &Marked::parse(text));
            }
        }
        for (kind, lines) in corpus("txt") {
            report.add_negatives(redactor, depth, &kind, &lines.replace('⁞', ""));
        }
        report
    }

    fn add_positive(&mut self, redactor: &Redactor, depth: Depth, rule: &str, marked: &Marked) {
        let (engine, secret) = (redactor.engine(), marked.secret.clone().unwrap());
        let found = engine.find(marked.text.as_bytes(), depth);
        let exact = found.iter().any(|hit| hit.at == secret && &**engine.name(hit.rule) == rule);
        let covers =
            |hit: &&tollgate::redact::Hit| hit.at.start <= secret.start && secret.end <= hit.at.end;
        let recall = self.rules.entry(rule.to_owned()).or_default();
        recall.all += 1;
        recall.exact += usize::from(exact);
        recall.covered += usize::from(found.iter().any(|hit| covers(&hit)));
        if !exact {
            let found = hits(redactor, &marked.text, depth);
            self.missed.push(format!("{rule}: {:?} {found:?}", marked.text));
        }
    }

    /// A file as one text, as secrets may have several lines.
    fn add_negatives(&mut self, redactor: &Redactor, depth: Depth, kind: &str, text: &str) {
        self.lines += text.lines().count();
        let mut last = None;
        for hit in redactor.engine().find(text.as_bytes(), depth) {
            let start = text[..hit.at.start].rfind('\n').map_or(0, |at| at + 1);
            if last.replace(start) != Some(start) {
                let rule = redactor.engine().name(hit.rule).to_string();
                let line = text[start..].lines().next().unwrap_or_default();
                self.wrong.entry(rule).or_default().push(format!("{kind}: {line}"));
            }
        }
    }

    fn positives(&self) -> usize {
        self.rules.values().map(|rule| rule.all).sum()
    }

    fn percent(&self, part: impl Fn(&Recall) -> usize) -> f64 {
        100.0 * ratio(self.rules.values().map(part).sum(), self.positives())
    }

    fn false_positives(&self) -> usize {
        self.wrong.values().map(Vec::len).sum()
    }

    /// In 10,000 lines.
    fn false_rate(&self) -> f64 {
        10_000.0 * ratio(self.false_positives(), self.lines)
    }

    fn write(&self, title: &str) -> String {
        let mut out = format!(
            "{title}: {} of {} secrets found to the byte and named right ({:.2} %), {:.2} % covered \
             by some rule; {} false positives in {} lines ({:.2} in 10,000)\n",
            self.rules.values().map(|rule| rule.exact).sum::<usize>(),
            self.positives(),
            self.percent(|rule| rule.exact),
            self.percent(|rule| rule.covered),
            self.false_positives(),
            self.lines,
            self.false_rate(),
        );
        let whole = self.rules.values().filter(|rule| rule.exact == rule.all).count();
        let _ = writeln!(out, "  {whole} of {} rules found all of theirs", self.rules.len());
        for (name, rule) in self.rules.iter().filter(|(_, rule)| rule.exact < rule.all).take(SHOWN)
        {
            let _ = writeln!(
                out,
                "  {name}: {} of {} to the byte, {} covered",
                rule.exact, rule.all, rule.covered
            );
        }
        for (name, lines) in &self.wrong {
            let _ = writeln!(out, "  false, by {name}: {}", lines.len());
            for line in lines.iter().take(SHOWN) {
                let _ = writeln!(out, "    {line}");
            }
        }
        out
    }
}

fn ratio(part: usize, all: usize) -> f64 {
    let number = |count| f64::from(u32::try_from(count).unwrap());
    number(part) / number(all)
}

#[expect(clippy::print_stdout, reason = "what it measures is to be seen: .config/nextest.toml")]
#[test]
fn report() {
    let (formats, complete) =
        (Report::of(&REDACTOR, Depth::Formats), Report::of(&REDACTOR, Depth::Complete));
    println!("\nRedaction on its corpus, {} rules", formats.rules.len());
    print!("{}", formats.write("Tier 1"));
    print!("{}", complete.write("Tiers 1 and 2"));
    assert!(formats.positives() >= LEAST_POSITIVES && formats.lines >= LEAST_NEGATIVES);
    assert_eq!(formats.rules.len(), REDACTOR.engine().rules().len(), "a rule has no lines");
    let recall = formats.percent(|rule| rule.exact);
    assert!(recall >= LEAST_RECALL, "{recall} %:\n{}", formats.missed.join("\n"));
    for report in [&formats, &complete] {
        assert!(report.false_rate() <= MOST_FALSE, "{} in 10,000", report.false_rate());
    }
}

#[test]
fn the_corpus_is_not_too_large() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/redact/corpus");
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    let bytes: u64 = files.filter(fs::Metadata::is_file).map(|file| file.len()).sum();
    assert!(bytes <= MOST_BYTES, "{bytes} bytes");
}
