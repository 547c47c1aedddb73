//! A text's tokens, estimated by the classes of its bytes: one table look-up a byte.
//!
//! The weights are sixty-fourths of a token, set so that the estimate of running text in any script, of JSON, of code and
//! of identifiers is between half and four times the counts of `o200k` and `cl100k` (tests), and close to most of them: in
//! Indic scripts the two differ from each other by a factor of nearly three. Space is free, since a word's token has the
//! space before it.

/// Sixty-fourths of a token by byte.
static WEIGHTS: [u64; 256] = weights();

const fn weights() -> [u64; 256] {
    let mut table = [0_u64; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            b'a'..=b'z' => 14,
            b'A'..=b'Z' => 30,
            b'0'..=b'9' => 38,
            b' ' => 2,
            0..=0x1F | 0x7F => 20,
            b'_' | b'-' | b'.' | b',' | b'/' => 36,
            b'"' | b':' | b'{' | b'}' | b'[' | b']' | b'\\' => 24,
            0x21..=0x7E => 44,
            // Continuations: the lead byte counts for the character.
            0x80..=0xBF => 0,
            // Two bytes: accented Latin, Greek, Cyrillic, Hebrew, Arabic.
            0xC0..=0xDF => 34,
            // Indic, Thai, Lao, Tibetan.
            0xE0 => 72,
            // Georgian, Burmese, Ethiopic, Khmer.
            0xE1 => 130,
            // Dashes, quotes, symbols.
            0xE2 => 80,
            // Kana, CJK, Hangul, full-width forms.
            0xE3..=0xEF => 62,
            // Emoji and the like.
            0xF0..=0xFF => 150,
        };
        byte += 1;
    }
    table
}

/// Tokens of a text, rounded up.
#[must_use]
pub fn tokens(text: &[u8]) -> u64 {
    let (mut sum, mut at) = (0_u64, 0);
    // By index: a build without optimisation pays for an iterator's calls a byte.
    while at < text.len() {
        sum += WEIGHTS[text[at] as usize];
        at += 1;
    }
    sum.div_ceil(64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::tokens::count;
    use handoffd_domain::window::Tokenizer;

    /// Texts of the kinds that messages carry, each long enough to count.
    const TEXTS: [(&str, &str); 14] = [
        (
            "english",
            "The reviewer found that clause 14.2 limits liability to direct damages, which the customer does not accept. We agreed to ask the vendor for a cap at twice the yearly fees, and to keep the indemnity for breaches of confidentiality unlimited. Nothing was signed yet.",
        ),
        (
            "german",
            "Die Prüferin stellte fest, dass Ziffer 14.2 die Haftung auf unmittelbare Schäden begrenzt, was der Auftraggeber nicht akzeptiert. Wir einigten uns darauf, den Anbieter um eine Obergrenze in Höhe der doppelten Jahresgebühr zu bitten.",
        ),
        (
            "french",
            "La relectrice a constaté que l'article 14.2 limite la responsabilité aux dommages directs, ce que le client n'accepte pas. Nous avons convenu de demander un plafond égal au double des redevances annuelles.",
        ),
        (
            "chinese",
            "审查员发现第14.2条将责任限制在直接损失范围内，客户不接受这一点。我们同意要求供应商将上限定为年费的两倍，并且对违反保密义务的赔偿不设上限。到目前为止尚未签署任何文件。",
        ),
        (
            "japanese",
            "審査担当者は、第14.2条が責任を直接損害に限定していることを確認しましたが、顧客はこれを受け入れていません。年間料金の二倍を上限とするよう提供者に求めることで合意しました。",
        ),
        (
            "korean",
            "검토자는 제14.2조가 책임을 직접 손해로 제한한다는 점을 확인했으며 고객은 이를 받아들이지 않습니다. 연간 요금의 두 배를 상한으로 요청하기로 합의했습니다.",
        ),
        (
            "russian",
            "Рецензент обнаружил, что пункт 14.2 ограничивает ответственность прямыми убытками, с чем заказчик не согласен. Мы договорились попросить поставщика установить предел в размере двойной годовой платы.",
        ),
        (
            "arabic",
            "وجدت المراجِعة أن البند 14.2 يحصر المسؤولية في الأضرار المباشرة، وهو ما لا يقبله العميل. اتفقنا على أن نطلب من المورّد حدًّا أقصى يعادل ضعف الرسوم السنوية.",
        ),
        (
            "hindi",
            "समीक्षक ने पाया कि खंड 14.2 दायित्व को प्रत्यक्ष क्षति तक सीमित करता है, जिसे ग्राहक स्वीकार नहीं करता। हमने विक्रेता से वार्षिक शुल्क के दोगुने की सीमा माँगने पर सहमति व्यक्त की।",
        ),
        (
            "json",
            r#"{"clauses":[{"id":"c-14.2","kind":"LIABILITY","cap":{"currency":"EUR","amount":250000},"open":true},{"id":"c-9","kind":"TERM","months":24,"open":false}],"riskFlags":["UNCAPPED_INDEMNITY","AUTO_RENEWAL"]}"#,
        ),
        (
            "code",
            "fn settle(&mut self, outcome: Outcome) -> Result<(), LedgerError> {\n    let row = self.outbox.get(&key).ok_or(LedgerError::NotFound(\"handoff\"))?;\n    self.handoff.attempts += 1;\n    Ok(())\n}\n",
        ),
        (
            "uuids",
            "3f0c9a52-7d7e-4f5b-9f43-0f2f7ac1e9aa 0b9a3c1e-52f4-4cf3-8f5a-aa1cf3f0d7e2 c7f8c9b2-3c55-4f5b-8a01-d3a1b7e49d10",
        ),
        (
            "base64",
            "TG9yZW0gaXBzdW0gZG9sb3Igc2l0IGFtZXQsIGNvbnNlY3RldHVyIGFkaXBpc2NpbmcgZWxpdCwgc2VkIGRvIGVpdXNtb2QgdGVtcG9yIGluY2lkaWR1bnQgdXQgbGFib3JlIGV0IGRvbG9yZSBtYWduYSBhbGlxdWEu",
        ),
        (
            "hex",
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        ),
    ];

    #[test]
    fn the_estimate_is_between_half_and_four_times_of_what_both_tokenizers_count() {
        for (kind, text) in TEXTS {
            let estimate = tokens(text.as_bytes()) as f64;
            for tokenizer in [Tokenizer::O200k, Tokenizer::Cl100k] {
                let exact = count(text, tokenizer) as f64;
                let off = estimate / exact;
                assert!(
                    (0.5..=4.0).contains(&off),
                    "{kind}: {estimate} of {exact} ({tokenizer:?})"
                );
            }
        }
    }

    #[test]
    fn no_text_has_more_tokens_than_bytes() {
        for (kind, text) in TEXTS {
            for tokenizer in [Tokenizer::O200k, Tokenizer::Cl100k] {
                assert!(count(text, tokenizer) <= text.len() as u64, "{kind}");
            }
        }
    }

    #[test]
    #[ignore = "prints the table of docs/context.md"]
    fn estimates_beside_counts() {
        for (kind, text) in TEXTS {
            println!(
                "{kind:10} estimate {:4} o200k {:4} cl100k {:4}",
                tokens(text.as_bytes()),
                count(text, Tokenizer::O200k),
                count(text, Tokenizer::Cl100k)
            );
        }
    }
}
