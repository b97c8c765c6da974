//! Where in a JSON text something was found, for people: `messages[0].content[1].text`.

use std::{fmt::Write as _, ops::Range};

use super::json::{Token, Tokens};

/// Names on the way that are shown; what lies deeper is `…`.
const MAX_DEPTH: usize = 16;
/// A name that is longer is a text, not a name.
const MAX_NAME_BYTES: usize = 48;
/// A path is read by people, and goes into an error and an audit row.
const MAX_PATH_BYTES: usize = 200;
/// In place of a name that is not shown.
const HIDDEN: &str = "…";

/// A container that is open, and where in it the walk is.
enum Frame {
    Object(Range<usize>),
    Array(usize),
}

/// The paths of the first `most` places, each within a string of `text`. `found` are in order.
///
/// A place within a name has `…` for it. So has a name in which something was found, or which
/// could be anything: only `[A-Za-z0-9_$-]{1,48}` is shown.
pub(super) fn paths<T>(text: &[u8], found: &[(Range<usize>, T)], most: usize) -> Vec<String> {
    let mut wanted = found.iter().take(most).peekable();
    let mut paths = Vec::new();
    let mut way = Way { text, frames: Vec::new(), deeper: 0 };
    let is_hidden = |name: &Range<usize>| {
        let next = found.partition_point(|(at, _)| at.end <= name.start);
        found.get(next).is_some_and(|(at, _)| at.start < name.end)
    };
    for token in Tokens::new(text) {
        if wanted.peek().is_none() {
            break;
        }
        match token {
            Token::OpenObject => way.open(Frame::Object(0..0)),
            Token::OpenArray => way.open(Frame::Array(0)),
            Token::Close => way.close(),
            Token::Comma => way.step(),
            Token::String(string) => {
                if string.is_name {
                    way.name(string.at.clone());
                }
                while wanted.next_if(|(at, _)| at.start < string.at.end).is_some() {
                    paths.push(way.render(&is_hidden));
                }
            }
        }
    }
    paths
}

struct Way<'a> {
    text: &'a [u8],
    frames: Vec<Frame>,
    /// Containers that are open beyond the last frame.
    deeper: usize,
}

impl Way<'_> {
    fn open(&mut self, frame: Frame) {
        if self.frames.len() < MAX_DEPTH {
            self.frames.push(frame);
        } else {
            self.deeper += 1;
        }
    }

    fn close(&mut self) {
        if self.deeper > 0 {
            self.deeper -= 1;
        } else {
            self.frames.pop();
        }
    }

    fn step(&mut self) {
        if let (Some(Frame::Array(index)), 0) = (self.frames.last_mut(), self.deeper) {
            *index += 1;
        }
    }

    fn name(&mut self, at: Range<usize>) {
        if let (Some(Frame::Object(name)), 0) = (self.frames.last_mut(), self.deeper) {
            *name = at;
        }
    }

    fn render(&self, is_hidden: &impl Fn(&Range<usize>) -> bool) -> String {
        let mut path = String::new();
        for frame in &self.frames {
            let before = path.len();
            match frame {
                Frame::Array(index) => {
                    // A String takes all that is written to it.
                    let _ = write!(path, "[{index}]");
                }
                Frame::Object(at) => {
                    if !path.is_empty() {
                        path.push('.');
                    }
                    let name = self.text.get(at.clone()).and_then(shown);
                    path.push_str(name.filter(|_| !is_hidden(at)).unwrap_or(HIDDEN));
                }
            }
            if path.len() > MAX_PATH_BYTES {
                path.truncate(before);
                return path + HIDDEN;
            }
        }
        if self.deeper > 0 || path.is_empty() {
            path.push_str(HIDDEN);
        }
        path
    }
}

fn shown(name: &[u8]) -> Option<&str> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_$-".contains(byte);
    let fits = (1..=MAX_NAME_BYTES).contains(&name.len()) && name.iter().all(is_plain);
    std::str::from_utf8(name).ok().filter(|_| fits)
}
