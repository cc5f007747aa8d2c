//! A tar archive in gzip format, for `tar xzf` on any system.
//!
//! Nothing is compressed: that keeps both formats short enough to be written here, without a dependency for one command.
//! Invariant: an existing file is never touched, and an incomplete archive is removed.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

const BLOCK: usize = 512;
const NAME_BYTES_MAX: usize = 100;
const PREFIX_BYTES_MAX: usize = 155;
/// The largest size in eleven octal digits; larger sizes are written in binary.
const OCTAL_SIZE_MAX: u64 = 0o777_7777_7777;

#[derive(Debug)]
pub(super) struct Archive {
    path: PathBuf,
    to: Gzip<BufWriter<File>>,
    finished: bool,
}

impl Archive {
    /// Readable by its owner only.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            path: path.to_owned(),
            to: Gzip::new(BufWriter::new(file))?,
            finished: false,
        })
    }

    pub(super) fn add(&mut self, name: &str, from: &Path) -> io::Result<()> {
        let file = File::open(from)?;
        let about = file.metadata()?;
        let header = header(name, about.size(), about.mode() & 0o777, about.mtime())?;
        self.to.write_all(&header)?;
        // A file that grows meanwhile is cut at the size in the header.
        let copied = io::copy(&mut file.take(about.size()), &mut self.to)?;
        if copied != about.size() {
            let message = format!("{} was truncated while it was read", from.display());
            return Err(io::Error::other(message));
        }
        let over = usize::try_from(about.size() % BLOCK as u64).unwrap_or_default();
        let padding = (BLOCK - over) % BLOCK;
        self.to.write_all(&[0; BLOCK][..padding])
    }

    /// The size of the archive.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.to.write_all(&[0; 2 * BLOCK])?;
        let file = self.to.end()?.get_ref();
        file.sync_all()?;
        self.finished = true;
        Ok(file.metadata()?.len())
    }
}

impl Drop for Archive {
    fn drop(&mut self) {
        if !self.finished {
            // The original error is more useful than one about the leftover file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn header(name: &str, size: u64, mode: u32, modified_s: i64) -> io::Result<[u8; BLOCK]> {
    let (prefix, name) = split_name(name)?;
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, format!("{mode:07o}").as_bytes());
    // Owner and group are those of the user who unpacks it.
    put(108, b"0000000");
    put(116, b"0000000");
    if size <= OCTAL_SIZE_MAX {
        put(124, format!("{size:011o}").as_bytes());
    } else {
        put(124, &[0x80]);
        put(128, &size.to_be_bytes());
    }
    put(136, format!("{:011o}", modified_s.max(0)).as_bytes());
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    put(345, prefix.as_bytes());
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    Ok(block)
}

/// A long name is split at a slash.
fn split_name(name: &str) -> io::Result<(&str, &str)> {
    if name.len() <= NAME_BYTES_MAX {
        return Ok(("", name));
    }
    let mut slashes = name.match_indices('/').map(|(at, _)| at);
    let fits = |at: &usize| *at <= PREFIX_BYTES_MAX && name.len() - at - 1 <= NAME_BYTES_MAX;
    match slashes.find(fits) {
        Some(at) => Ok((&name[..at], &name[at + 1..])),
        None => Err(io::Error::other(format!("the name {name} is too long"))),
    }
}

/// Gzip with stored, uncompressed blocks.
#[derive(Debug)]
struct Gzip<W> {
    to: W,
    crc: u32,
    length: u32,
}

impl<W: Write> Gzip<W> {
    fn new(mut to: W) -> io::Result<Self> {
        to.write_all(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff])?;
        Ok(Self {
            to,
            crc: !0,
            length: 0,
        })
    }

    /// The last, empty block and the checksums.
    fn end(&mut self) -> io::Result<&mut W> {
        self.to.write_all(&[1, 0, 0, 0xff, 0xff])?;
        self.to.write_all(&(!self.crc).to_le_bytes())?;
        self.to.write_all(&self.length.to_le_bytes())?;
        self.to.flush()?;
        Ok(&mut self.to)
    }
}

impl<W: Write> Write for Gzip<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        let bytes = &bytes[..usize::from(length)];
        self.to.write_all(&[0])?;
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(&(!length).to_le_bytes())?;
        self.to.write_all(bytes)?;
        for byte in bytes {
            let [low, ..] = self.crc.to_le_bytes();
            self.crc = CRC[usize::from(low ^ byte)] ^ (self.crc >> 8);
        }
        self.length = self.length.wrapping_add(u32::from(length));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

const CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte: u8 = 0;
    loop {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ (0xedb8_8320 * (sum & 1));
            bit += 1;
        }
        table[byte as usize] = sum;
        if byte == u8::MAX {
            break table;
        }
        byte += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_envelope_has_the_sum_that_gzip_expects() {
        let mut gzip = Gzip::new(Vec::new()).unwrap();
        gzip.write_all(b"123456789").unwrap();
        let bytes = gzip.end().unwrap();
        let sums = &bytes[bytes.len() - 8..];
        assert_eq!(sums, [0x26, 0x39, 0xf4, 0xcb, 9, 0, 0, 0]);
    }

    #[test]
    fn long_names_are_split_and_longer_ones_refused() {
        let name = format!("{}/{}", "d".repeat(120), "f".repeat(90));
        let (prefix, rest) = split_name(&name).unwrap();
        assert_eq!(format!("{prefix}/{rest}"), name);
        assert!(split_name(&"x".repeat(101)).is_err());
    }

    #[test]
    fn what_is_there_is_left_alone_and_half_an_archive_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let mut archive = Archive::create(&path).unwrap();
        assert!(archive.add("x", Path::new("/no/such/file")).is_err());
        drop(archive);
        assert!(!path.exists());
        fs::write(&path, "mine").unwrap();
        assert!(Archive::create(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }
}
