//! Chooses the pieces of a prompt that fit a number of tokens: by need, then by order. A piece of the receiver's task, or of the
//! state, may take half of the room that is left; a piece that does not fit is cut at a line, or left out.

use super::{Need, Piece, Section};

/// The shown part of a piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PieceShown {
    No,
    Whole,
    /// These lines from its beginning.
    Cut(String),
}

/// Room below which a piece is left out and not cut.
const MIN_CUT: u64 = 60;

fn of_all(sections: &[Section], shown: &PieceShown) -> Vec<Vec<PieceShown>> {
    sections.iter().map(|section| vec![shown.clone(); section.pieces.len()]).collect()
}

pub(super) fn everything(sections: &[Section]) -> Vec<Vec<PieceShown>> {
    of_all(sections, &PieceShown::Whole)
}

pub(super) fn nothing(sections: &[Section]) -> Vec<Vec<PieceShown>> {
    of_all(sections, &PieceShown::No)
}

/// As many pieces as fit into so many tokens.
pub(super) fn fit(
    sections: &[Section],
    mut room: u64,
    count: &dyn Fn(&str) -> u64,
) -> Vec<Vec<PieceShown>> {
    let mut shown = nothing(sections);
    let mut all: Vec<(usize, usize, &Piece)> = Vec::new();
    for (at, section) in sections.iter().enumerate() {
        all.extend(section.pieces.iter().enumerate().map(|(place, piece)| (at, place, piece)));
    }
    all.sort_by_key(|(at, _, piece)| (piece.need, piece.order, *at));
    // Of turns those that stay are the last ones without a gap.
    let mut full: Option<Need> = None;
    for (at, place, piece) in all {
        if full == Some(piece.need) && piece.need == Need::Turns {
            continue;
        }
        let frame = count(&piece.pointer) + FRAME;
        let tokens = count(&piece.data) + frame;
        let needed = piece.need <= Need::State;
        let most = if needed { room / 2 } else { room };
        if tokens <= most || (needed && tokens <= room && tokens < MIN_CUT * 2) {
            room -= tokens;
            shown[at][place] = PieceShown::Whole;
            continue;
        }
        full = Some(piece.need);
        let within = most.saturating_sub(frame);
        if within >= MIN_CUT && piece.need != Need::Turns {
            let data = cut(&piece.data, within, count);
            room = room.saturating_sub(count(&data) + frame);
            shown[at][place] = PieceShown::Cut(data);
        }
    }
    shown
}

/// Tokens of an origin line besides its pointer, of a heading, and of the note at a cut.
const FRAME: u64 = 110;

/// The beginning of the data of a piece in so many tokens: whole lines, or the beginning of a line that is longer.
fn cut(data: &str, most: u64, count: &dyn Fn(&str) -> u64) -> String {
    let mut end = data.len();
    while end > 0 && count(&data[..end]) > most {
        // Shrinks by share, and by a byte at least.
        let share = most as f64 / count(&data[..end]) as f64;
        let next = ((end as f64 * share) as usize).min(end - 1);
        end = data.floor_char_boundary(next);
    }
    let kept = &data[..end];
    let whole_lines = kept.rfind('\n').map(|at| at + 1).filter(|at| *at * 2 > end);
    if let Some(at) = whole_lines {
        return kept[..at].to_owned();
    }
    // The escape of a character stays whole.
    let open = kept.rfind('¦').filter(|at| !kept[*at..].contains('}')).unwrap_or(end);
    let mut kept = kept[..open].to_owned();
    if kept.len() > 2 && !kept.ends_with('\n') {
        kept.push('\n');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_keeps_lines_and_signs_whole() {
        let count = |text: &str| text.len() as u64;
        assert_eq!(cut("| one\n| two\n| three\n", 13, &count), "| one\n| two\n");
        assert_eq!(cut("| abc¦{3C}def\n", 9, &count), "| abc\n");
        assert_eq!(cut("| häh\n", 4, &count), "| h\n");
    }
}
