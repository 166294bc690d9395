# The lines of usage.sh as pairs of a file and a kernel of it, with the bytes that the kernel spills on all architectures
# as "=BYTES" after its name; a second file is a list whose kernels are kept as far as they are of other files.
FNR != NR {
    if ($1 ~ /\.cu:$/) {
        file = substr($1, 1, length($1) - 1)
        $1 = ""
    }
    for (i = 1; i <= NF; i++)
        if (file && $i && !(file in compiled)) print file, $i
    next
}
FNR == 1 { next }
{
    compiled[$2] = 1
    spills[$2 " " $1] += $6
}
END {
    for (kernel in spills) print kernel (spills[kernel] ? "=" spills[kernel] : "")
}
