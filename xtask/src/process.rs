//! Runs a child program: shows the command, streams what it prints, keeps a copy in a log, ends it when time is up.
//!
//! A log has no colour codes. A child that ran out of time is ended together with its
//! descendants, found by parent id, because a server left behind would hold ports and pipes.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How often a running child is looked at.
const POLL: Duration = Duration::from_millis(50);
/// What a child gets between being asked to stop and being stopped.
const GRACE: Duration = Duration::from_secs(5);

/// How a child came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The exit code; `None` when a signal ended it.
    Exit(Option<i32>),
    OutOfTime,
}

impl Ended {
    pub(crate) fn success(self) -> bool {
        self == Self::Exit(Some(0))
    }

    /// Turns everything but success into a sentence about `what`.
    pub(crate) fn demand_success(self, what: &str) -> Result<(), String> {
        match self {
            Self::Exit(Some(0)) => Ok(()),
            Self::Exit(Some(code)) => Err(format!("{what} failed with exit code {code}")),
            Self::Exit(None) => Err(format!("{what} was ended by a signal")),
            Self::OutOfTime => Err(format!("{what} was stopped: the time budget ran out")),
        }
    }
}

/// Where the output of a child goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Output<'a> {
    Terminal,
    /// All of it to the terminal's stream for errors: what our output holds is somebody else's report.
    Aside,
    /// To the terminal, with a copy in this file.
    Copied(&'a Path),
    /// To this file only: for runs whose failures are wanted and would read like real ones.
    Logged(&'a Path),
}

/// Runs `command` to its end.
pub(crate) fn run(
    mut command: Command,
    output: Output<'_>,
    deadline: Option<Instant>,
) -> Result<Ended, String> {
    eprintln!("$ {}", shown(&command));
    command.stdin(Stdio::null());
    let log = match output {
        Output::Terminal => None,
        Output::Aside => {
            command.stdout(io::stderr());
            None
        }
        Output::Copied(log) => Some((log, true)),
        Output::Logged(log) => Some((log, false)),
    };
    if log.is_some() {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
    let mut child = command.spawn().map_err(|error| {
        let name = command.get_program().to_string_lossy();
        format!("cannot start {name}: {error}")
    })?;
    let copying = log
        .map(|(log, echo)| Copying::start(&mut child, log, echo))
        .transpose()?;
    let ended = wait(&mut child, deadline)?;
    if let Some(copying) = copying {
        copying.finish();
    }
    Ok(ended)
}

/// Runs `command` quietly and gives back what it printed on its output, if it succeeded.
pub(crate) fn ask(mut command: Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as one could type it.
pub(crate) fn shown(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!(
                "{}={}",
                name.display(),
                quoted(&value.to_string_lossy())
            ));
        }
    }
    words.push(command.get_program().to_string_lossy().into_owned());
    words.extend(command.get_args().map(|arg| quoted(&arg.to_string_lossy())));
    words.join(" ")
}

fn quoted(word: &str) -> String {
    if word.contains([' ', '(', ')', '*', '&', '|']) {
        format!("'{word}'")
    } else {
        word.to_owned()
    }
}

fn wait(child: &mut Child, deadline: Option<Instant>) -> Result<Ended, String> {
    loop {
        let status = child
            .try_wait()
            .map_err(|error| format!("cannot wait for a child: {error}"))?;
        if let Some(status) = status {
            return Ok(Ended::Exit(status.code()));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            stop(child);
            return Ok(Ended::OutOfTime);
        }
        thread::sleep(POLL);
    }
}

fn stop(child: &mut Child) {
    let family = family_of(child.id());
    signal("-TERM", &family);
    let until = Instant::now() + GRACE;
    while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(POLL);
    }
    signal("-KILL", &family);
    // The child is gone or about to be; its status no longer matters.
    let _ = child.wait();
}

fn signal(signal: &str, processes: &[u32]) {
    let ids = processes.iter().map(ToString::to_string);
    // Those that have ended in the meantime make `kill` complain, which is fine.
    let _ = Command::new("kill")
        .arg(signal)
        .args(ids)
        .stderr(Stdio::null())
        .status();
}

/// The process and all that descend from it.
fn family_of(first: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        parents.extend(id_and_parent(&stat));
    }
    let mut family = vec![first];
    let mut next = 0;
    while let Some(&member) = family.get(next) {
        let children = parents.iter().filter(|(_, parent)| *parent == member);
        family.extend(children.map(|(id, _)| *id));
        next += 1;
    }
    family
}

/// Reads `id (name) state parent ...`; the name may hold spaces and parentheses.
fn id_and_parent(stat: &str) -> Option<(u32, u32)> {
    let (id, _) = stat.split_once(' ')?;
    let (_, rest) = stat.rsplit_once(')')?;
    let parent = rest.split_whitespace().nth(1)?;
    Some((id.parse().ok()?, parent.parse().ok()?))
}

/// The two threads that copy a child's output.
struct Copying {
    finished: mpsc::Receiver<()>,
}

impl Copying {
    fn start(child: &mut Child, log: &Path, echo: bool) -> Result<Self, String> {
        crate::context::write(log, "")?;
        let file = File::options()
            .append(true)
            .open(log)
            .map_err(|error| format!("cannot open {}: {error}", log.display()))?;
        let file = Arc::new(Mutex::new(file));
        let (sender, finished) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            let terminal = echo.then(io::stdout);
            copy(stdout, terminal, Arc::clone(&file), sender.clone());
        }
        if let Some(stderr) = child.stderr.take() {
            copy(stderr, echo.then(io::stderr), file, sender);
        }
        Ok(Self { finished })
    }

    /// Waits for the last lines, though not for ever: a stray grandchild may keep a pipe open.
    fn finish(self) {
        while self.finished.recv_timeout(GRACE).is_ok() {}
    }
}

fn copy(
    from: impl Read + Send + 'static,
    mut terminal: Option<impl Write + Send + 'static>,
    log: Arc<Mutex<File>>,
    finished: Sender<()>,
) {
    thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        while matches!(reader.read_until(b'\n', &mut line), Ok(count) if count > 0) {
            if let Some(terminal) = &mut terminal {
                // A closed terminal must not stop the copy into the log.
                let _ = terminal.write_all(&line);
            }
            if let Ok(mut log) = log.lock() {
                let _ = log.write_all(&without_colour(&line));
            }
            line.clear();
        }
        // Nobody listens any more once the wait was given up.
        let _ = finished.send(());
    });
}

/// Drops terminal escapes of the form `ESC [ ... letter`.
fn without_colour(line: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(line.len());
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte == 0x1b && bytes.peek() == Some(&b'[') {
            bytes.by_ref().skip(1).find(u8::is_ascii_alphabetic);
        } else {
            plain.push(byte);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_lands_in_the_log_without_colour_and_the_code_comes_back() {
        let log = std::env::temp_dir().join(format!("xtask-process-{}.log", std::process::id()));
        let script = r"printf '\033[32mgreen\033[0m\n'; echo loud >&2; exit 3";
        let ended = run(shell(script), Output::Logged(&log), None).unwrap();
        let text = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        assert_eq!(ended, Ended::Exit(Some(3)));
        assert!(
            text.contains("green\n") && text.contains("loud\n"),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_child_past_its_deadline_is_stopped_with_its_own_children() {
        let deadline = Instant::now() + Duration::from_millis(100);
        let started = Instant::now();
        let ended = run(shell("sleep 60 & wait"), Output::Terminal, Some(deadline)).unwrap();
        assert_eq!(ended, Ended::OutOfTime);
        assert!(started.elapsed() < Duration::from_secs(30));
        assert!(
            ended
                .demand_success("the child")
                .unwrap_err()
                .contains("budget")
        );
    }

    #[test]
    fn the_process_table_is_read_past_odd_names() {
        assert_eq!(id_and_parent("12 (a) b) S 7 12 12"), Some((12, 7)));
        assert_eq!(id_and_parent(""), None);
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let refusal =
            run(Command::new("no-such-program-here"), Output::Terminal, None).unwrap_err();
        assert!(refusal.contains("no-such-program-here"));
    }
}
