//! Runs a child program: prints the command, streams its output, copies it to a log, stops it at the deadline.
//!
//! A log has no colour codes. A child past its deadline is stopped together with its
//! descendants, found by parent id, because a server left behind would keep ports and pipes open.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How often a running child is polled.
const POLL: Duration = Duration::from_millis(50);
/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChildExit {
    /// The exit code; `None` when a signal ended it.
    Status(Option<i32>),
    TimedOut,
}

impl ChildExit {
    pub(crate) fn success(self) -> bool {
        self == Self::Status(Some(0))
    }

    /// Turns everything but success into a sentence about `what`.
    pub(crate) fn require_success(self, what: &str) -> Result<(), String> {
        match self {
            Self::Status(Some(0)) => Ok(()),
            Self::Status(Some(code)) => Err(format!("{what} failed with exit code {code}")),
            Self::Status(None) => Err(format!("{what} was ended by a signal")),
            Self::TimedOut => Err(format!("{what} was stopped: the time budget ran out")),
        }
    }
}

/// Where the output of a child goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Output<'a> {
    Terminal,
    /// Both streams to standard error: standard output is for the report of the command.
    Stderr,
    /// To the terminal, with a copy in this file.
    Copied(&'a Path),
    /// To this file only: for runs that must fail, whose failures would look like real ones.
    Logged(&'a Path),
}

/// Runs `command` to its end.
pub(crate) fn run(
    mut command: Command,
    output: Output<'_>,
    deadline: Option<Instant>,
) -> Result<ChildExit, String> {
    eprintln!("$ {}", command_line(&command));
    command.stdin(Stdio::null());
    let log = match output {
        Output::Terminal => None,
        Output::Stderr => {
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
    let copy_threads = log
        .map(|(log, echo)| OutputCopy::start(&mut child, log, echo))
        .transpose()?;
    let ended = wait(&mut child, deadline)?;
    if let Some(copy_threads) = copy_threads {
        copy_threads.finish();
    }
    Ok(ended)
}

/// The standard output of `command`, if it succeeds; nothing is printed.
pub(crate) fn output_of(mut command: Command) -> Option<String> {
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

/// The command as a line for a shell.
pub(crate) fn command_line(command: &Command) -> String {
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

fn wait(child: &mut Child, deadline: Option<Instant>) -> Result<ChildExit, String> {
    loop {
        let status = child
            .try_wait()
            .map_err(|error| format!("cannot wait for a child: {error}"))?;
        if let Some(status) = status {
            return Ok(ChildExit::Status(status.code()));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            stop(child);
            return Ok(ChildExit::TimedOut);
        }
        thread::sleep(POLL);
    }
}

fn stop(child: &mut Child) {
    let processes = process_tree(child.id());
    signal("-TERM", &processes);
    let until = Instant::now() + GRACE;
    while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(POLL);
    }
    signal("-KILL", &processes);
    // The child is gone or about to be; its status no longer matters.
    let _ = child.wait();
}

fn signal(signal: &str, processes: &[u32]) {
    let ids = processes.iter().map(ToString::to_string);
    // `kill` fails for processes that have ended in the meantime, which is fine.
    let _ = Command::new("kill")
        .arg(signal)
        .args(ids)
        .stderr(Stdio::null())
        .status();
}

/// The process and all its descendants.
fn process_tree(first: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        parents.extend(id_and_parent(&stat));
    }
    let mut processes = vec![first];
    let mut next = 0;
    while let Some(&member) = processes.get(next) {
        let children = parents.iter().filter(|(_, parent)| *parent == member);
        processes.extend(children.map(|(id, _)| *id));
        next += 1;
    }
    processes
}

/// Reads `id (name) state parent ...`; the name may hold spaces and parentheses.
fn id_and_parent(stat: &str) -> Option<(u32, u32)> {
    let (id, _) = stat.split_once(' ')?;
    let (_, rest) = stat.rsplit_once(')')?;
    let parent = rest.split_whitespace().nth(1)?;
    Some((id.parse().ok()?, parent.parse().ok()?))
}

/// The two threads that copy a child's output.
struct OutputCopy {
    finished: mpsc::Receiver<()>,
}

impl OutputCopy {
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

    /// Waits for the last lines, with a limit: a descendant that still runs may keep a pipe open.
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
        // The receiver is gone if the wait has reached its limit.
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
    fn the_log_has_the_output_without_colour_and_the_exit_code_is_returned() {
        let log = std::env::temp_dir().join(format!("xtask-process-{}.log", std::process::id()));
        let script = r"printf '\033[32mgreen\033[0m\n'; echo loud >&2; exit 3";
        let ended = run(shell(script), Output::Logged(&log), None).unwrap();
        let text = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        assert_eq!(ended, ChildExit::Status(Some(3)));
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
        assert_eq!(ended, ChildExit::TimedOut);
        assert!(started.elapsed() < Duration::from_secs(30));
        assert!(
            ended
                .require_success("the child")
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
    fn the_error_names_a_missing_program() {
        let refusal =
            run(Command::new("no-such-program-here"), Output::Terminal, None).unwrap_err();
        assert!(refusal.contains("no-such-program-here"));
    }
}
