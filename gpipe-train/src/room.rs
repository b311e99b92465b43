//! Lines to a reader that may not read.

use std::sync::atomic::AtomicBool;

/// Waits until a line can be written to a stream without waiting for its reader, which a stopped terminal (Ctrl-S) and a full
/// pipe make one do; `false` once `stop` has been set for half a second: a run that was asked to stop saves and ends without
/// saying so.
///
/// Where the system cannot tell (Windows), there is room.
#[cfg(unix)]
pub fn has_room(stream: impl std::os::fd::AsFd, stop: &AtomicBool) -> bool {
    use std::sync::atomic::Ordering;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::io::Errno;

    /// Between two looks at `stop`, which a signal may set right before the system waits.
    const LOOK: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    // A slow reader hears of the end too.
    let mut looks = 10;
    while looks > 0 {
        let mut looked_at = [PollFd::new(&stream, PollFlags::OUT)];
        match poll(&mut looked_at, Some(&LOOK)) {
            Ok(0) | Err(Errno::INTR) if stop.load(Ordering::Relaxed) => looks -= 1,
            Ok(0) | Err(Errno::INTR) => {}
            _ => return true,
        }
    }
    false
}

/// As above.
#[cfg(not(unix))]
pub fn has_room<T>(_stream: T, _stop: &AtomicBool) -> bool {
    true
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::{Read as _, Write as _, pipe};
    use std::sync::atomic::Ordering;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_full_pipe_has_no_room_until_it_is_read_or_a_stop_is_asked_for() {
        let (mut reader, mut writer) = pipe().unwrap();
        let stop = AtomicBool::new(false);
        assert!(has_room(&writer, &stop));
        // The room of a pipe, at least.
        let written = thread::spawn({
            let mut writer = writer.try_clone().unwrap();
            move || writer.write_all(&[0; 1 << 20])
        });
        thread::sleep(Duration::from_millis(100));
        let late = || {
            thread::sleep(Duration::from_millis(100));
            stop.store(true, Ordering::Relaxed);
        };
        thread::scope(|scope| {
            scope.spawn(late);
            assert!(!has_room(&writer, &stop));
        });
        stop.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut all = vec![0; 1 << 20];
                reader.read_exact(&mut all)
            });
            assert!(has_room(&writer, &stop));
        });
        written.join().unwrap().unwrap();
        writer.flush().unwrap();
    }
}
