"""Small expressions and templates, about one per feature, for make_template_goldens.py."""

DATA = {
    "n": 3, "m": -7, "f": 2.5, "s": "Hello, World", "t": "  <b>é漢🦙</b>\n", "u": "a,b,,c", "l": [3, 1, 2],
    "k": ["b", "A", "c", "a"], "d": {"b": 1, "a": {"x": [1, 2.0, None, True]}, "items": "shadowed"}, "b": True,
    "nil": None, "msgs": [{"role": "user", "content": "hi", "n": 2}, {"role": "assistant", "content": None, "n": 1},
                          {"role": "user", "content": "Ho", "n": 10}],
    "quote": "it's \"q\" \\ \t\u0001\u00a0\u200b", "big": 9007199254740993, "tiny": 1e-7, "huge": 1e22, "zero": 0,
    "long": "The quick brown fox\njumps over\n\nthe lazy dog", "empty": "", "arr": [], "obj": {},
    "words": ["straße", "ΑΣΣ", "ǆ", "ŉ"],
}

EXPRESSIONS = r"""
1 + 2 * 3 - 4
7 / 2
6 / 3
7 // 2
-7 // 2
7 // -2
-7 % 3
7 % -3
-7.5 % 2
7.5 // 2
-7.5 // 2
2 ** 10
2 ** -1
2 ** 3 ** 2
-2 ** 2
2 ** 0.5
0 ** 0
n + f
true + true
true / 2
1_000 + 0x1F + 0b11 + 0o17
1.5e3
1e5
1e16
1e15
123456789012345680.0
0.0001
0.00001
1.0
100.0 / 3
big
big + 1
tiny
huge
-0.0
'a' + 'b'
'a' 'b' "c"
'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] ~ missing
'ab' * 3
3 * 'ab'
[1, 2] * 2
[1] + [2]
(1,) + (2, 3)
1, 2
()
(1,)
[1, 'a', none, true, 1.0, [], {}, ()]
{'a': 1, 'b': [2, {'c': none}]}
{1: 'x', none: 2, true: 3, 2.5: 4, (1, 2): 5}
{'a': 1, 'a': 2}
{}['a'] is defined
'%s is %d or %5.2f and %r %%' % ('x', 3, 2.5, 'q')
'%s' % 'a'
'%s' % [1, 2]
'%05d|%-5d|%+d|%x|%X|%o|%e|%g' % (42, 42, 42, 255, 255, 8, 12345.678, 0.0001)
'%(a)s-%(b)s' % {'a': 1, 'b': 2}
'%5s|%-5s|%.2s' % ('ab', 'ab', 'abc')
'%d' % 3.99
'{} and {}'.format(1, 'b')
'{1} {0} {x}'.format('a', 'b', x=3)
'{:>6}|{:<6}|{:^6}|{:*^7}'.format('a', 'b', 'c', 'd')
'{:.2f} {:d} {:05d} {:,} {:x} {:e} {:+d} {:%}'.format(3.14159, 5, 42, 1234567, 255, 12345.6789, 3, 0.25)
'{:5}|{:<5}|{:.3}'.format(42, 42, 'abcdef')
'{{}} {!r}'.format('x')
'{}'.format([1, 'a'])
'Hello %s!' | format('you')
'%(x)s' | format(x=1)
1 == 1.0
1 == true
'a' == 'a'
[1, 2] == [1, 2]
[1, 2] == (1, 2)
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
none == false
missing == missing
missing == none
1 < 2 < 3
1 < 2 > 5
1 != 2 != 1
'a' < 'b'
'Z' < 'a'
'é' > 'z'
'🦙' > '\uffff'
[1, 2] < [1, 3]
[1] < [1, 0]
(1, 'a') < (1, 'b')
1 < 1.5
big > 9007199254740992.0
9007199254740993 == 9007199254740992.0
'ell' in s
'x' not in s
1 in l
1.0 in l
'a' in d
'zz' in d
'a' in {}.keys()
2 in range(3)
none in [none]
not 1
not not 1
not missing
not 1 == 2
1 and 2
0 and 2
0 or 'x'
none or false
'' or [] or 0
1 or missing.x
'a' if true else 'b'
'a' if false else 'b'
'a' if false
('a' if false) is undefined
'a' if 0 else 'b' if 0 else 'c'
1 if n > 2 and not b else 2
-n
+n
- -3
-f
+true
s[0]
s[-1]
s[100] is undefined
s[1:4]
s[::-1]
s[-5:]
s[:-5]
s[::2]
s[5:1]
s[5:1:-2]
s[-100:100]
t[2:6]
t[::-1]
t[4]
l[0]
l[-1]
l[3] is undefined
l[1:]
l[::-1]
l[:]
l[true]
l['x'] is undefined
(1, 2, 3)[1:]
range(10)[2:8:3]
range(10)[-1]
range(5)[::-1] | list
range(3)
range(1, 10, 3)
range(5) | list
range(5, 0, -2) | list
range(0) | list
range(3) | length
range(4) | sum
d.b
d['a'].x[1]
d.a['x'][-1]
d['items']
d.get('b')
d.get('zz')
d.get('zz', 'dflt')
d.keys() | list
d.values() | list | length
d.items() | list | length
{'a': 1}.items()
{'a': 1}.keys()
{'a': 1}.values()
d.zz is defined
d.zz
nil.foo is defined
nil['foo']
n.foo is undefined
msgs.0.role
msgs[0].role
msgs[-1]['content']
msgs[0].content[0]
msgs[1].content is none
msgs[1].content.foo is defined
'abc'.upper is callable
'abc'['upper']()
missing
missing is defined
missing is undefined
[missing]
missing | default('d')
missing | default
nil | default('d')
'' | default('d')
'' | default('d', true)
nil | d('x', boolean=true)
missing | length
missing | list
missing | upper
missing ~ 'a'
missing is sequence
missing is iterable
missing is mapping
missing | string
missing | join
missing | first is undefined
'x' in missing
nil is none
nil is not none
n is number
f is number
b is number
b is integer
n is integer
f is float
n is float
b is boolean
b is true
b is false
1 is true
s is string
n is string
l is sequence
s is sequence
d is sequence
d is mapping
l is mapping
l is iterable
n is iterable
d.keys() is sequence
d.keys() is iterable
range(2) is sequence
n is odd
n is even
m is odd
10 is divisibleby 5
10 is divisibleby(3)
'abc' is lower
'aBc' is lower
'ABC' is upper
'1' is upper
n is eq 3
n is eq(3)
n is equalto 3
n is ne 3
n is lt 4
n is gt 4
n is le 3
n is ge 3
n is lessthan 4
n is greaterthan 4
n is in [1, 2, 3]
n is not in [1, 2]
'a' is in 'abc'
n is not none and n is not string
nil is sameas none
b is sameas true
l is sameas l
range is callable
s is callable
'<' | e is escaped
n is defined and d.zz is not defined
'  x '.strip() ~ '|'
'  x '.lstrip() ~ '|'
'  x '.rstrip() ~ '|'
'xxaxbxx'.strip('x')
'\n\nab\n'.lstrip('\n')
'abcba'.strip('ab')
'éaé'.strip('é')
'\u3000 a\u00a0'.strip()
u.split(',')
u.split(',', 1)
u.rsplit(',', 1)
u.rsplit(',')
' a  b c '.split()
' a  b c '.split(none, 1)
' a  b c '.rsplit(none, 1)
''.split()
''.split(',')
'a b'.split(' ', maxsplit=0)
'aXXbXXc'.split('XX')
'x</think>y</think>\nz'.split('</think>')[-1].lstrip('\n')
long.splitlines()
long.splitlines(true)
'a\r\nb\rc\n'.splitlines()
''.splitlines()
s.startswith('Hello')
s.startswith('World', 7)
s.startswith(('x', 'He'))
s.endswith('World')
s.endswith('')
''.startswith('')
s.replace('l', 'L')
s.replace('l', 'L', 2)
'abc'.replace('', '-')
'abc'.replace('', '-', 2)
'aaa'.replace('aa', 'b')
s.upper()
s.lower()
'hello wORLD it\'s'.title()
'hELLO'.capitalize()
words | map('upper') | list
words | map('lower') | list
words | map('title') | list
words | map('capitalize') | list
'İI'.lower()
s.find('World')
s.find('zz')
s.find('l', 5)
t.find('🦙')
s.rfind('l')
s.index('W')
s.count('l')
'aaaa'.count('aa')
'abc'.count('')
', '.join(['a', 'b'])
''.join('abc')
'-'.join({'a': 1, 'b': 2})
'12'.isdigit()
'1a'.isdigit()
''.isdigit()
'ab'.isalpha()
'é'.isalpha()
'a1'.isalnum()
' \t'.isspace()
'AB1'.isupper()
'ab1'.islower()
'42'.zfill(5)
'-42'.zfill(5)
'a'.ljust(3) ~ '|'
'a'.rjust(3)
'a'.center(4, '*')
'ab'.center(5, '*')
'a=b=c'.partition('=')
'a=b=c'.rpartition('=')
'abc'.partition('x')
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
l.index(1)
l.count(1)
(1, 2, 1).count(1)
t | trim
'xxaxx' | trim('x')
5 | trim
s | upper
s | lower
n | upper
'hello-world (foo) [bar] x_y' | title
'it\'s ABC' | title
'hELLO wORLD' | capitalize
s | replace('l', 'L')
s | replace('l', 'L', 1)
123 | replace(2, 'x')
s | length
t | length
l | length
d | count
l | first
l | last
s | first
s | last
arr | first is undefined
arr | last is undefined
d | first
d | list
s[:3] | list
l | join
l | join(', ')
l | join(d='-')
msgs | join(', ', attribute='role')
['a', 1, none, true] | join('|')
s[:3] | join('.')
l | sort
l | sort(reverse=true)
k | sort
k | sort(case_sensitive=true)
msgs | sort(attribute='n') | map(attribute='n') | list
msgs | sort(attribute='role,n') | map(attribute='n') | list
msgs | sort(attribute='n', reverse=true) | map(attribute='n') | join(' ')
d | dictsort | length if false else 'mixed'
{'b': 1, 'A': 2, 'c': 0} | dictsort
{'b': 1, 'A': 2, 'c': 0} | dictsort(true)
{'b': 1, 'A': 2, 'c': 0} | dictsort(by='value')
{'b': 1, 'A': 2, 'c': 0} | dictsort(reverse=true)
k | unique | list
[1, 2, 1, 1.0] | unique | list
msgs | unique(attribute='role') | map(attribute='n') | list
l | reverse | list
s | reverse
k | map('upper') | list
msgs | map(attribute='role') | list
msgs | map(attribute='zz', default='none') | list
msgs | map(attribute='content') | list
[[1, 2], [3]] | map('length') | list
[[1, 2], [3]] | map('join', '-') | list
[[1, 2], [3]] | map(attribute=0) | list
['1', '2'] | map('int') | sum
[0, 1, '', 'a', none] | select | list
[0, 1, '', 'a', none] | reject | list
l | select('gt', 1) | list
l | select('odd') | list
l | reject('eq', 1) | list
l | select('in', [1, 2]) | list
l | select('==', 1) | list
msgs | selectattr('role', 'equalto', 'user') | list | length
msgs | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(' ')
msgs | selectattr('content') | list | length
msgs | rejectattr('content') | map(attribute='role') | list
msgs | rejectattr('role', 'in', ['user']) | map(attribute='role') | list
msgs | selectattr('n', '>', 1) | map(attribute='n') | list
msgs | selectattr('zz', 'defined') | list
msgs | selectattr('content', 'none') | list | length
msgs | groupby('role') | map(attribute='grouper') | list
msgs | groupby('role') | map('last') | map('length') | list
[{'a': 'X'}, {'a': 'x'}, {'a': 'b'}] | groupby('a')
l | sum
msgs | sum(attribute='n')
[1.5, 2] | sum
[] | sum
[[1], [2]] | sum(start=[])
l | min
l | max
k | min
k | max
msgs | max(attribute='n')
[] | max is undefined
[1, 2, 3, 4, 5] | batch(2) | list
[1, 2, 3, 4, 5] | batch(2, 'x') | list
[1, 2, 3, 4, 5] | slice(3) | list
[1, 2, 3, 4, 5] | slice(3, 'x') | list
d.a | items | list
{'a': 1, 'b': 2} | items | list
missing | items | list
n | string
l | string
'42' | int
' 42 ' | int
'4.7' | int
'x' | int
'x' | int(7)
'x' | int(default=none)
'ff' | int(base=16)
'0x1f' | int(0, 16)
'1_000' | int
4.9 | int
-4.9 | int
none | int
true | int
'3.5' | float
'x' | float
'x' | float(1.5)
'1e3' | float
5 | float
'inf' | float
m | abs
-2.5 | abs
2.5 | round
3.5 | round
2.567 | round(2)
2.675 | round(2)
42 | round
2.1 | round(method='ceil')
2.9 | round(0, 'floor')
2.123 | round(2, 'ceil')
0.5 | round | int
long | indent
long | indent(2)
long | indent(2, true)
long | indent(2, blank=true)
long | indent('> ')
'' | indent
long | wordcount
'a b/c?d=é&e' | urlencode
{'a b': 1, 'c': 'é&'} | urlencode
'<a href="x">&\'' | e
'<b>' | safe
'<b>' | escape | string | length
[1, '<'] | safe
'x' | center(5) ~ '|'
long | truncate(12)
long | truncate(12, true)
'abcdefgh' | truncate(5, leeway=0)
'abc' | truncate(5)
{'a': 1} | attr('zz') is undefined
s | tojson
t | tojson
quote | tojson
quote
[quote]
['a\'b', 'a"b', 'a\'"b', 'é', '\u200b', '\U000e0001', '\x7f']
l | tojson
d | tojson
d | tojson(indent=2)
d | tojson(indent=4)
d | tojson(indent=0)
d | tojson(indent='--')
d | tojson(sort_keys=true)
d | tojson(separators=(',', ':'))
d | tojson(ensure_ascii=false)
t | tojson(ensure_ascii=true)
t | tojson(true)
'</script>&' | tojson
[] | tojson(indent=2)
{} | tojson(indent=2)
[[], {}, [1]] | tojson(indent=2)
(1, 2) | tojson
[1.0, 1e20, 1e-7, true, none] | tojson
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
{'b': 1, 'a': 2} | tojson(sort_keys=true, indent=1)
('inf' | float) | tojson
msgs | tojson
strftime_now('%d %b %Y')
strftime_now('%Y-%m-%d %H:%M:%S %A %B %a %j %y %I %p %%')
strftime_now('%-d %-m %-H %e|%F %T|%D|%u%w')
strftime_now('Wörld %B')
dict(a=1, b='x')
dict({'a': 1}, b=2)
dict([['a', 1]])
namespace(a=1).a
namespace({'a': 1}, b=2).b
namespace().zz is defined
[1, 2, 3][l[1]]
{'a': {'b': 'c'}}.a.b
'a'.upper().lower().title()
(1 + 2) * 3
((((1))))
[[[[1]]]][0][0][0]
1 if true else missing.x.y
'\x41\u00e9\U0001F999\101\q\\\'\"'
"it's"
'line\
join'
true and none is none
n|string ~ 's'
-n|abs
(n|string)[0]
l|first + 1
'a' is string and 'b' is string
not n is string
n is not string
[1,2,]
{'a':1,}
(l)|length
d.a.x|length
{'a': 'b'}['a']|upper
s.split(', ')[1][0]|lower
s.upper()[::-1].lower()
'abc'|list|reverse|join
1.5|string|length
'é' in t
'%s' % missing
'%s' % none
True and not False
None is none
0.1 + 0.2
1 / 3
10 ** 15
1e100
5 % 2.5
-1 % 5
loop is defined
caller is defined
d is defined and d.a is mapping and d.a.x is iterable
""".strip("\n").split("\n")
# One expression is written over two lines.
for _k, _e in enumerate(EXPRESSIONS):
    if _e.endswith("\\"):
        EXPRESSIONS[_k:_k + 2] = [_e + "\n" + EXPRESSIONS[_k + 1]]
        break

TEMPLATES = [
    "", "\n", "\n\n", "plain {text} } %} {", "a\r\nb\rc\n", "{{ 1 }}\n", "{{ 1 }}\n\n", "é漢🦙{{ n }}🦙",
    "a {# comment #} b", "a\n{# comment #}\nb", "a\n  {#- comment -#}  \nb", "{# {{ n }} {% if %} #}x", "{#+ a +#}\nx",
    "  {% if true %}\n  x\n  {% endif %}\n  y", "a  {%- if true -%}  b  {%- endif -%}  c", "a {%+ if true +%} b {% endif %}",
    "  {%+ if true %}\nx{% endif %}", "  {{ n }}\n  {{- n }}\n  {{ n -}}\n  x", "a\n\n  {%- set x = 1 %}\n\nb",
    "{% if true %}\n\nx{% endif %}\n\n", "{% if true -%}\n\n x{% endif %}", "x {% if true %}y{% endif %}\nz", "{{- '' }} a",
    "{{+1}}|{{-1}}|{{- 1 -}} x", "{{ '%}' }}{{ '}}' }}", "{{ {'a': {'b': 1}}}}", "{{ {'a':1}['a']}}",
    "{% raw %}{{ n }}{% if %}{% endraw %}", "{% raw -%}  {{ n }}  {%- endraw %} x", "{%- raw %} a {% endraw -%} b",
    "  {% raw %}\n a\n  {% endraw %}\nb",
    "{% if n == 3 %}a{% elif n == 4 %}b{% else %}c{% endif %}", "{% if 0 %}a{% elif true %}b{% else %}c{% endif %}",
    "{% if 0 %}a{% elif 0 %}b{% else %}c{% endif %}", "{% if missing %}a{% endif %}x", "{% if n, %}t{% endif %}",
    "{% for i in l %}{{ i }},{% endfor %}", "{% for i in [] %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
    "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}",
    "{% for i in range(5) %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for i in [1,1,2] %}{{ loop.changed(i) }}{% endfor %}",
    "{% for i in l %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}", "{% for i in l %}{{ loop['index'] }}{{ loop.zz is defined }}{% endfor %}",
    "{% for i in range(6) if i is odd %}{{ i }}{{ loop.length }} {% else %}no{% endfor %}",
    "{% for i in range(6) if i > 9 %}{{ i }}{% else %}no{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}{% endfor %}", "{% for k, v in {'a': 1, 'b': 2}|items %}{{ k }}={{ v }}{{ ', ' if not loop.last }}{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for c in 'aé🦙' %}{{ c }}.{% endfor %}", "{% for (a, (b, c)) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in ['xy', [1, 2]] %}{{ a }}-{{ b }} {% endfor %}", "{% for i in missing %}x{% else %}e{% endfor %}",
    "{% for i in 1, 2 %}{{ i }}{% endfor %}", "{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% for i in l %}{% set o = loop %}{% for j in [1] %}{{ o.index }}{% endfor %}{% endfor %}",
    "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1] %}{% break %}{% else %}E{% endfor %}", "{% for i in [1, 2] %}{% continue %}{% else %}E{% endfor %}",
    "{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}{% else %}E{% endfor %}",
    "{% for i in l %}{% for j in [1] %}{% else %}{% continue %}{% endfor %}{{ i }}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "{% for i in l %}{% set y = i %}{% endfor %}{{ y is defined }}",
    "{% for i in l %}{{ x is defined }}{% set x = i %}{% endfor %}", "{% for i in l %}{{ i }}{% endfor %}{{ i is defined }}",
    "{% for n in l %}{{ n }}{% endfor %}{{ n }}", "{% for i in l %}{% if loop.first %}{% set n = 9 %}{% endif %}{{ n }}{% endfor %}",
    "{% set ns = namespace(x=0) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b = ns.a + 1 %}{{ ns.a }}{{ ns.b }}{{ ns['b'] }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set (a, b) = l[:2] %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set x = n if b else 0 %}{{ x }}",
    "{% set x %}a{{ n }}b{% endset %}{{ x }}|{{ x is string }}", "{% set x | upper %}abc{% endset %}{{ x }}",
    "{% set x | trim | replace('a', 'b') %} a {% endset %}{{ x }}", "{% set x %}{% for i in l %}{{ i }}{% endfor %}{% endset %}{{ x|length }}",
    "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", "{% set n = n + 1 %}{{ n }}", "{% set msgs = msgs[1:] %}{{ msgs|length }}",
    "{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='y') }}{{ m(b=5, a=4) }}{{ m() }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}",
    "{% macro m(a) %}{{ a }}{{ varargs|join('-') }}{% endmacro %}{{ m(1, 2, 3) }}{{ m(*[4, 5]) }}{{ m(**{'a': 6}) }}",
    "{% macro m(x) %}<{{ caller(x) }}>{% endmacro %}{% call(y) m(3) %}in {{ y }}{{ n }}{% endcall %}",
    "{% macro m() %}{% if caller is defined %}{{ caller() }}{% else %}no{% endif %}{% endmacro %}{{ m() }}{% call m() %}c{% endcall %}",
    "{% macro f(k) %}{% if k > 0 %}{{ k }}{{ f(k - 1) }}{% endif %}{% endmacro %}{{ f(4) }}", "{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}{% set x = 3 %}{{ m() }}",
    "{% macro m() %}{% set q = 1 %}{{ q }}{% endmacro %}{{ m() }}{{ q is defined }}", "{% macro m() %}  a\n{% endmacro %}[{{ m() }}]{{ m()|length }}{{ m() is string }}",
    "{% macro m(n) %}{{ n }}{% endmacro %}{{ m(1) }}{{ n }}", "{% macro m() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}",
    "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}", "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}",
    "{% macro m() %}x{% endmacro %}{{ m is callable }}{{ m is defined }}", "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}",
    "{% filter upper %}abc {{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aa{% endfilter %}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}",
    "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}", "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}", "{% print n, s %}",
    "{% generation %}a{{ n }}{% endgeneration %}b", "{% for m in msgs %}{% generation %}{{ m.role }}{{ loop.index }}{% endgeneration %}{% endfor %}",
    "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q is defined }}", "x\n{% generation %}\n  a\n{% endgeneration %}\ny",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.reset() }}{{ c.current }}",
    "{% set j = joiner('|') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}", "{% set it = l|map('string') %}{{ it|list }}{{ it|list }}", "{% set it = []|select %}{{ 'yes' if it else 'no' }}",
    "{% set it = l|select('odd') %}{{ it|first }}{{ it|first }}{{ it|first is defined }}", "{% if false %}{{ n|nofilter }}{% endif %}x", "{{ n|nofilter if false else 'ok' }}",
    "{% if false %}{{ n is notest }}{% endif %}x", "{% set range = 3 %}{{ range }}", "{% set x = d.update %}{{ x is defined }}", "{{ l.append is defined }}{{ d.pop }}", "{{ d.__class__ }}{{ s.__len__ is defined }}",
    "{% for g in msgs|groupby('role') %}{{ g.grouper }}:{{ g.list|length }} {% endfor %}", "{% for role, items in msgs|groupby('role') %}{{ role }}{{ items|length }}{% endfor %}",
    "{% for m in msgs %}{% if m.content is string %}{{ m.content }}{% elif m.content is none %}-{% endif %}{% endfor %}", "{%if n%}a{%endif%}", "{%-if n-%} a {%-endif-%} b",
    "{% for i in l -%}\n  {{ i }}\n{%- endfor %}", "{% for i in l %}\n{{ i }}\n{% endfor %}\n", "{% set x = 'a' -%}\n b", "{% set x = [1,\n 2] %}\n{{ x }}", "{{\n  n\n}}\n",
    "{% set text = '' %}{% for m in msgs %}{% set text = text ~ m.role %}{% endfor %}[{{ text }}]", "{% if not loop is defined %}y{% endif %}", "{{ n }}{{ '\\n' }}\n{{ n }}",
    "{% set x = msgs | selectattr('role', 'equalto', 'user') | list %}{{ x[-1].content }}{{ x[0] == msgs[0] }}", "{{ '<' | e }}{{ '<' ~ ('<' | e) }}", "{% set m = {'a': l} %}{{ m.a[0] }}{{ m['a'][1:] }}",
    "{% macro show(v) %}{% if v is mapping %}{ {% for k, w in v.items() %}{{ k }}: {{ show(w) }}{% if not loop.last %}, {% endif %}{% endfor %} }{% elif v is iterable and v is not string %}[{% for w in v %}{{ show(w) }}{% if not loop.last %}, {% endif %}{% endfor %}]{% else %}{{ v }}{% endif %}{% endmacro %}{{ show({'a': [1, {'b': none}], 'c': 'x'}) }}",
    "{% set ns = namespace(l=[]) %}{% for i in l %}{% set ns.l = ns.l + [i * 2] %}{% endfor %}{{ ns.l }}", "{% set ns = namespace(self_=1) %}{% set ns.n = ns %}{{ ns.n.n.self_ }}",
    "{% if n is defined and n is number and n > 2 -%} big {%- endif %}", "{{ 'a' if n else 'b' ~ 'c' }}{{ ('a' if n else 'b') ~ 'c' }}",
    "{% set a %}{% set b = 1 %}{{ b }}{% endset %}{{ a }}{{ b is defined }}", "{% for i in range(3) %}{% set ns2 = namespace(v=i) %}{{ ns2.v }}{% endfor %}", "{{ n -}}   \n {{- s }}", "a{#- x -#}  b {# y #}\n c",
]

ERRORS = [
    "{{ raise_exception('Custom message: ' ~ n) }}", "{% if true %}\n\n{{ raise_exception('line 3') }}{% endif %}",
    "{% for m in msgs %}{% if m.role == 'assistant' %}{{ raise_exception('no ' + m.role) }}{% endif %}{% endfor %}",
    "{{", "{{ }}", "{{ 1", "{% if %}{% endif %}", "{% if n %}", "{% endif %}", "{% for i in l %}", "{% for in l %}{% endfor %}", "{% for i l %}{% endfor %}",
    "{% else %}", "{% unknown %}", "{% set %}", "{% set 1 = 2 %}", "{% set x = %}", "{% set true = 1 %}", "{% macro %}{% endmacro %}", "{% macro m( %}{% endmacro %}",
    "{% macro m(a=1, b) %}{% endmacro %}", "{% break %}", "{% continue %}", "{% for i in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}", "{# open", "{% raw %}x", "{{ 'open }}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}",
    "{{ 1 + }}", "{{ * 2 }}", "{{ a b }}", "{{ 1 2 }}", "{{ a. }}", "{{ a.'b' }}", "{{ a[ }}", "{{ f(1,,2) }}", "{{ f(a=1, 2) }}", "{{ f(a=1, a=2) }}", "{{ {1} }}", "{{ {'a' 1} }}", "{{ a ? b }}", "{{ a $ }}", "{{ a ! b }}", "{{ 'a' & 'b' }}",
    "{{ n|nofilter }}", "{{ n is notest }}", "{% for i in l %}{{ i|nofilter }}{% endfor %}", "{{ n| }}", "{{ n is }}", "{{ n|upper(1) }}", "{{ n if }}", "{% if a if b else c %}{% endif %}", "{{ 1 if 2 else }}", "{% if n %}{% else %}{% else %}{% endif %}",
    "{{ missing.x }}", "{{ missing['x'] }}", "{{ missing() }}", "{{ missing + 1 }}", "{{ 1 + missing }}", "{{ missing < 1 }}", "{{ -missing }}", "{{ missing.x is defined }}", "{{ d.zz.y }}", "{{ missing[0:1] }}", "{{ missing | int }}", "{{ missing | tojson }}", "{{ [missing] | tojson }}",
    "{{ 'a' + 1 }}", "{{ 1 + 'a' }}", "{{ 'a' + none }}", "{{ 'a' - 'b' }}", "{{ [1] + (2,) }}", "{{ none + 1 }}", "{{ {} + {} }}", "{{ 'a' * 'b' }}", "{{ 'a' * 1.5 }}", "{{ 1 < 'a' }}", "{{ none < 1 }}", "{{ [1] < ['a'] }}", "{{ {} < {} }}", "{{ 1 / 0 }}", "{{ 1 // 0 }}", "{{ 1 % 0 }}", "{{ 1.0 / 0 }}", "{{ 0 ** -1 }}", "{{ -'a' }}", "{{ 1 in 's' }}", "{{ 'a' in 1 }}", "{{ none in none }}",
    "{{ nil[1:] }}", "{{ msgs[1].content[:1] }}", "{{ msgs[1].content.strip() }}", "{{ msgs[1].content + 'x' }}", "{{ msgs[1].content | length }}", "{{ n[0:1] }}", "{{ d[0:1] }}", "{{ s['a':'b'] }}", "{{ s[::0] }}", "{{ l[1.5:] }}", "{{ n() }}", "{{ s() }}", "{{ l.append(1) }}", "{{ d.update({}) }}", "{{ d.pop('a') }}", "{{ l.sort() }}", "{{ s.__class__.x }}", "{{ 'a'.nomethod() }}", "{{ nil.strip() }}", "{{ {[1]: 2} }}", "{{ [1] in {} }}",
    "{{ 5 | length }}", "{{ none | length }}", "{{ 5 | list }}", "{{ 5 | first }}", "{{ 5 | join }}", "{{ [1, 'a'] | sort }}", "{{ [none, 1] | max }}", "{{ ['a'] | sum }}", "{{ 'a' | abs }}", "{{ none | round }}", "{{ 5 | indent }}", "{{ 5 | items | list }}", "{{ [5] | map('nofilter') | list }}", "{{ l | select('notest') | list }}", "{{ 'a' is odd }}", "{{ none is odd }}", "{{ [{}] | map(attribute='a.b') | list }}", "{{ l | map | list }}", "{{ l | map(bad=1) | list }}",
    "{{ range('a') }}", "{{ range(1, 2, 0) }}", "{{ range(200000) }}", "{{ range() }}", "{{ namespace(1) }}", "{% set x.y = 1 %}", "{% set d.y = 1 %}", "{% set a, b = 1, 2, 3 %}", "{% set a, b = 1 %}", "{% for a, b in [1] %}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for i in 5 %}{% endfor %}", "{% for i in none %}{% endfor %}", "{% for loop in l %}{% endfor %}", "{% for i in l %}{{ loop.cycle() }}{% endfor %}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}{% endmacro %}{% call m() %}{% endcall %}", "{% call 1 %}{% endcall %}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{{ s.split('') }}", "{{ s.replace('a') }}", "{{ s.join([1]) }}", "{{ s.startswith(1) }}", "{{ s.index('zz') }}", "{{ l.index(99) }}", "{{ '%d' % 'a' }}", "{{ '%s %s' % 'a' }}", "{{ '%s' % ('a', 'b') }}", "{{ '{} {}'.format(1) }}", "{{ '{a}'.format(1) }}", "{{ '{:d}'.format('a') }}", "{{ '{'.format(1) }}",
    "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% do l.append(1) %}", "{{ 'a' is string is string }}", "{% endfor %}", "{% if n %}{% endfor %}", "{% filter nofilter %}x{% endfilter %}", "{% generation %}", "{% endgeneration %}", "{% for i in l %}{% generation %}{% break %}{% endgeneration %}{% endfor %}", "{{ '\\x4' }}", "{{ '\\ud83d' }}", "{{ [1, 2] | tojson(separators=1) }}", "{{ {(1, 2): 3} | tojson }}", "{{ l | map('upper') | tojson }}", "{{ d.keys() | tojson }}", "{{ raise_exception() }}", "{{ l[0].x.y }}",
]
