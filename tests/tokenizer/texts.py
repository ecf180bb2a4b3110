"""The texts of the committed goldens: written for this test, or drawn from a seeded generator. Under the repository's licence."""
import random

TRICKY = [
    "", " ", "  ", "   x", "\n", "\n\n", "\r\n\r\n", "\t\t", " \n", "\n ", " \n \n  x", "a  b   c    d", "x \t\n y\t z  ",
    "Hello, world!", "Hello,world ! Hello", "1234567 don't DON'T  \n\n x", "3.14e-10 1,234,567.89 0x1F 2^31 007", "12 345",
    "don't Don'T I'LL we'Ve they'RE he'd HE'D she's 'tis '90s rock'n'roll ' s '", "it’s ‘quoted’ “text” — en–dash… ¿qué?",
    "\u017ftra\u00dfe '\u017f '\u212a STRASSE 'S", "foo_bar snake_case CamelCase HTTPServer2Go kebab-case a.b.c",
    "def f(x):\n    if x > 0:\n        return x ** 2  # square\n\n\n    return -x\n\ttab = '\\t'\r\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 0.5f; } // {}[]()<>!@#$%^&*-=+~`|\\?/;:'\"",
    "ＡＢＣ１２３ ａｂｃ！？ ｶﾞｷﾞ", "½ ¼ Ⅻ ² ③ ٣٤٥ १२३ 一二三 〇 ௧௨ 𝟙𝟚𝟛 ㊿ ፩", "a½b²c 10²m ½½ ⅫⅫ1Ⅻ ١٢٣٤٥٦٧",
    "no\u00a0break\u00a0space \u2003em\u2003space\u3000ideographic\u3000\u1680ogham\u202fnarrow\u205fmath \u2028line\u2029para\u0085nel",
    "zero\u200bwidth\u200cnon\u200djoiner\u2060word\ufeffbom\u00adsoft \u180emongolian\u180e",
    "e\u0301 \u0301 \u0301\u0301\u0301 a\u0300\u0301\u0302b \u00e9 caf\u00e9 cafe\u0301 \u0344 \u0958 \u0f73 \u1e9b\u0323",
    "\u0071\u0307\u0323 \u0071\u0323\u0307 \u1e0b\u0323 \u0064\u0323\u0307 \u212b \u2126 \u00c5 \uf900 \ufb1d \U0002f800",
    "\u1100\u1161\u11a8 \uac00\u11a8 \ud55c\uae00 \u1112\u1161\u11ab\u1100\u1173\u11af \u3131\u3132 \uffa1",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd \u2764\ufe0f "
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f 1\ufe0f\u20e3 \u00a9 \u2122\ufe0f",
    "nul\x00nul \x00\x00 \x01\x02\x03\x04\x05\x06\x07\x08\x0b\x0c\x0e\x0f\x10\x13\x14\x16\x1b[0m\x1d\x1f\x7f\x80\x85\x9f",
    "a\x04b the\x04re \x06\x06 wo\x16rd 1\x1d2", "\ud7ff\ue000\ufffd\ufffe\uffff\U0010ffff\U000f0000 \U00100000",
    "Ġhello Ċ ĉ Ā ł Ń âĢĶ", "(‘‘'’)((([[[{{{<<<>>>}}}]]])))!!!???...,,,;;;:::$$$+++===^^^~~~|||```",
    "$100 + £20 = €30 ~ <tag attr=\"v\"> a|b a^b `code` §1 ¶2 †‡ ‰ №5 ½$ $½ +1 -1 ±1 =1=",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "A<|im_end|>\n<|im_start|>system\nB", "<|im_start|>x<|im_start|><|im|><|im_",
    "<|endoftext|><|endoftext|> <|endoftext|>a<|endoftext", "<tool_call>{\"a\": 1}</tool_call> <tool_call <a b><a  b> im_end <|im_end",
    " <|im_end|> \n<|im_end|>\n  <|im_end|>é\u0301<|im_end|>\u0301e", "<repo_name>x/y<file_sep>a.py\n<gh_stars>100<issue_start>",
    "The quick brown fox jumps over the lazy dog. " * 3, "a" * 300, "us" * 150, "." * 200, " " * 257, "\n" * 130, "\t \t" * 50 + "x",
    "é" * 100, "中" * 120, "7" * 100, "\u0301" * 60, "\u0316\u0301" * 40, "=-" * 80, "\r\n" * 60, "ab " * 90, "\U0001f600" * 40,
    "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0MTIzNDU2Nzg5MCsvPT0ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo=" * 3,
    "https://example.org/path/to/file.html?query=value&other=1#fragment user@example.org 2001:db8::1 192.0.2.1",
    # Letters, numbers and punctuation of Unicode 15, 15.1 and 16: newer than many a regex library's tables.
    "\U00031350\U000323af\U0002ebf0 a\U000105c0\U00010d4a 1\U00011f50\U0001e5f1\U00010d40 !\u1b4e\U00011f43\u1b7f \ua7cb's \U0001e4d0\U0001e4ec",
    "2026-11-29T19:14:04Z 12:30 pm 1st 2nd 3rd 4x4 H2O CO₂ x² π≈3.14159 √2 ∑∏∫ ∀x∈ℝ ⇒ ℵ₀ 𝔄𝕭𝓒",
]

# One sentence per script, written for this test.
SENTENCES = [
    "All people are born with the same rights, and nobody may take them away.", "Der Fluss fließt über Größe und Maß hinweg; schön, nicht?",
    "Où est passé l'élève? Il a mangé un œuf à Noël, naïvement.", "El niño pequeño comió piñas en el jardín mañana.",
    "Książka leży na żółtym stole, źle się dzieje.", "Příliš žluťoučký kůň úpěl ďábelské ódy.", "Быстрая лиса прыгает через ленивую собаку ночью.",
    "Швидка лисиця їсть ґрунт під яблунею.", "Η γρήγορη αλεπού πηδάει πάνω από τον σκύλο.", "السماء زرقاء اليوم والبحر هادئ، أليس كذلك؟",
    "הכלב הקטן רץ מהר בגן הגדול.", "आज मौसम बहुत अच्छा है, चलो बाहर चलते हैं।", "আজ আকাশ খুব নীল এবং বাতাস ঠান্ডা।", "இன்று வானம் மிகவும் நீலமாக உள்ளது.",
    "ఈ రోజు ఆకాశం చాలా నీలంగా ఉంది.", "วันนี้อากาศดีมากและท้องฟ้าเป็นสีฟ้า", "ມື້ນີ້ອາກາດດີຫຼາຍ", "今天的天气很好，我们一起去公园散步吧。", "今日は天気がいいので、公園へ散歩に行きましょう。ｶﾀｶﾅも。",
    "오늘은 날씨가 좋아서 공원에 산책하러 갑시다.", "დღეს კარგი ამინდია და ცა ლურჯია.", "Այսօր եղանակը շատ լավ է։", "ዛሬ አየሩ በጣም ጥሩ ነው።", "Hôm nay trời rất đẹp, chúng ta đi dạo công viên nhé.",
    "ថ្ងៃនេះអាកាសធាតុល្អណាស់", "ယနေ့ ရာသီဥတု အလွန်ကောင်းသည်။", "Bugün hava çok güzel, İstanbul'da ışık var.", "ᓄᓇᕗᑦ ᐃᓄᒃᑎᑐᑦ", "ᚠᚢᚦᚨᚱᚲ 𐌰𐌱𐌲 𓀀𓀁 𒀀𒀁",
]
CHUNKS = [" ", " ", " ", "  ", "\n", "\n\n", "\t", "\r\n", "    ", ", ", ". ", "'s ", "'ll ", "n't ", "1", "42", "2026", "3.14", "-", "_", "(", ")", "{}",
          "[0]", "==", "!=", "\u00a0", "\u3000", "\u200d", "\ufe0f", "\u0301", "\u0323", "\u0308", "\U0001f600", "\U0001f469\u200d\U0001f4bb", "½", "²", "Ⅳ", "٣", "\x00",
          "<|im_end|>", "<|im_start|>", "<tool_call>", "é", "e\u0301", "ß", "ſ", "İ", "ı", "ﬁ", "Å", "\u212b", "中", "한", "ㄱ", "\u1100\u1161", "ñ", "ж", "ü"]
ALPHABETS = ["abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJ", "абвгдежзик", "αβγδεζηθ", "あいうえおアイウ", "的一是不了人我在有他", "가나다라마바사", "אבגדהו", "ابتثجح", "कखगघािी", "กขคงาิ", "0123456789",
             "!?.,;:-+*/=<>@#$%^&|~`'\"\\"]


def bulk(count=110, size=420, seed=20261129):
    """Mixed documents of about `size` characters."""
    rng, out = random.Random(seed), []
    for _ in range(count):
        text = ""
        while len(text) < size:
            pick = rng.random()
            if pick < 0.25:
                words = rng.choice(SENTENCES).split(" ")
                start = rng.randrange(len(words))
                text += " ".join(words[start:start + 6])
            elif pick < 0.6:
                text += rng.choice(CHUNKS) * rng.choice([1, 1, 1, 1, 2, 3])
            else:
                alphabet = rng.choice(ALPHABETS)
                text += "".join(rng.choice(alphabet) for _ in range(rng.randrange(1, 9)))
        out.append(text)
    return out


def documents():
    return TRICKY + SENTENCES + bulk()
