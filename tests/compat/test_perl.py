#!/usr/bin/env python3
"""perl: hashes, regular expressions, sorts, long strings, fork, and threads where perl has them.
What it prints must be what it prints without the library."""

import os

from compat import need, prove_command, run_both, run_test

SCRIPT = r"""
use strict;
use warnings;
use Config;

my ($x, %hash, @list) = (42);
sub rnd { $x = ($x * 1103515245 + 12345) % 2147483648; return $x >> 8; }

for my $i (1 .. 200_000) {
    my $key = 'key' . (rnd() % 40_000);
    $hash{$key} .= chr(97 + $i % 26);
    delete $hash{'key' . (rnd() % 40_000)} if $i % 3 == 0;
    push @list, { name => $key, place => [$i, rnd() % 1000] } if $i % 4 == 0;
}
printf "hash %d %d\n", scalar(keys %hash), length(join '', map { $hash{$_} } sort keys %hash);
my @sorted = sort { $a->{place}[1] <=> $b->{place}[1] or $a->{name} cmp $b->{name}
                        or $a->{place}[0] <=> $b->{place}[0] } @list;
print join(' ', map { "$_->{name}:$_->{place}[1]" } @sorted[0 .. 20]), "\n";

my $text = join ' ', map { $_->{name} . 'x' x ($_->{place}[1] % 17) } @list;
my %count;
$count{$1 . length $2}++ while $text =~ /\b(key\d)\d*(x*)/g;
print join(',', map { "$_=$count{$_}" } sort keys %count), "\n";
(my $changed = $text) =~ s/(\d+)/<@{[$1 * 2]}>/g;
print length($changed), ' ', unpack('%32C*', $changed), "\n";
my $long = '';
$long .= 'abc' x $_ for 1 .. 1500;
print length($long), ' ', scalar(() = $long =~ /(?:ab|c)+?ca/g), "\n";

my @pids;
for my $child (1 .. 3) {
    my $pid = fork();
    die "fork: $!" unless defined $pid;
    if (!$pid) {
        my %mine = map { $_ => "$_" x 20 } 1 .. 20_000;
        delete @hash{keys %hash};
        exit(scalar(keys %mine) == 20_000 ? 0 : 1);
    }
    push @pids, $pid;
}
for my $pid (@pids) {
    waitpid $pid, 0;
    print "child $?\n";
}
if ($Config{useithreads}) {
    require threads;
    my @threads = map { my $n = $_; threads->create(sub {
        my %own = map { $_ => [1 .. $n] } 1 .. 3000; return scalar keys %own; }) } 1 .. 4;
    print 'threads ', join(' ', map { $_->join } @threads), "\n";
}
"""


def main(work):
    perl = need("perl", "perl")
    script = os.path.join(work, "served.pl")
    with open(script, "w") as file:
        file.write(SCRIPT)
    run_both([perl, script])
    prove_command([perl, script])


run_test(main)
