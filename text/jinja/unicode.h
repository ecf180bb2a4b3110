// Text as Python's str sees it: code points, whitespace, case and printability over UTF-8 strings.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pop::jinja {

// True when the bytes are well-formed UTF-8 (no surrogates, no overlong forms, nothing above U+10FFFF).
bool valid_utf8(std::string_view text);
bool is_ascii(std::string_view text);

// Every function below expects well-formed UTF-8.
size_t count_code_points(std::string_view text);
char32_t decode_at(std::string_view text, size_t& position);  // moves `position` behind the code point
std::u32string to_code_points(std::string_view text);
void append_code_point(std::string& out, char32_t code_point);
std::string to_utf8(std::u32string_view text);

bool is_space(char32_t c);      // str.isspace
bool is_printable(char32_t c);  // str.isprintable
bool is_alpha(char32_t c);      // str.isalpha
bool is_digit(char32_t c);      // decimal digits (category Nd)
bool is_cased(char32_t c);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);       // str.title
std::string capitalize(std::string_view text);  // str.capitalize

// str.strip: whitespace, or the code points of `chars` when given.
std::string_view strip(std::string_view text, bool left, bool right);
std::string_view strip_chars(std::string_view text, std::string_view chars, bool left, bool right);

// str.splitlines
std::vector<std::string> split_lines(std::string_view text, bool keep_ends);

// std::string::find in linear time for long needles too (hostile templates).
size_t find_text(std::string_view text, std::string_view needle, size_t from = 0);

}  // namespace pop::jinja
