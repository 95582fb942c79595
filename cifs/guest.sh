#!/bin/sh
# Runs in the virtual machine: mounts the share in several ways, and does what users do.
# Kernel arguments: port=, user=, password=, share=. Prints `ok NAME` or `FAIL NAME` for each check.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in $(cat /lib/modules); do insmod /lib/$module.ko || echo "note: $module not loaded"; done
for argument in $(cat /proc/cmdline); do
    case $argument in port=* | user=* | password=* | share=*) eval "${argument%%=*}='${argument#*=}'" ;; esac
done
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
route add default gw 10.0.2.2

check() { # check NAME COMMAND...
    name=$1
    shift
    if "$@" >/tmp/out 2>&1; then echo "ok $variant: $name"; else
        echo "FAIL $variant: $name"
        head -5 /tmp/out | sed 's/^/    /'
    fi
}
mount_share() {
    mount -t cifs "//10.0.2.2/$share" /mnt -o \
        "ip=10.0.2.2,unc=\\\\10.0.2.2\\$share,port=$port,username=$user,password=$password,iocharset=utf8,$1"
}
same() { [ "$1" = "$2" ] || { echo "$1 is not $2"; return 1; }; }
contents() { same "$(cat "$1")" "$2"; }
sum() { md5sum <"$1" | cut -d' ' -f1; }
size() { stat -c %s "$1"; }
# The client keeps attributes for a second.
forget() { sleep 2; ls -l >/dev/null; }
refuses() { ! "$@"; }

text() { echo "some text" >text.txt && contents text.txt "some text"; }
appended() { echo more >>text.txt && contents text.txt "some text
more"; }
truncated() { truncate -s 4 text.txt && contents text.txt some && same "$(size text.txt)" 4; }
extended() { truncate -s 8192 text.txt && same "$(size text.txt)" 8192 && truncate -s 0 text.txt; }
large() {
    dd if=/dev/urandom of=/tmp/large bs=1M count=16 2>/dev/null
    cp /tmp/large large.bin && sync && same "$(sum large.bin)" "$(sum /tmp/large)"
}
uncached() { echo 3 >/proc/sys/vm/drop_caches; same "$(sum large.bin)" "$(sum /tmp/large)"; }
patched() {
    printf XYZ | dd of=large.bin bs=1 seek=5000000 conv=notrunc 2>/dev/null
    printf XYZ | dd of=/tmp/large bs=1 seek=5000000 conv=notrunc 2>/dev/null
    uncached
}
sparse() {
    printf end | dd of=sparse.bin bs=1 seek=3000000 2>/dev/null
    same "$(size sparse.bin)" 3000003 && same "$(dd if=sparse.bin bs=1000 count=1 2>/dev/null | tr -d '\0' | wc -c)" 0
}
tree() { mkdir -p one/two/three && echo leaf >one/two/three/leaf && cp -r one copied && contents copied/two/three/leaf leaf; }
renamed() { mv copied moved && refuses ls copied && contents moved/two/three/leaf leaf; }
replaced() { echo a >a && echo b >b && mv -f a b && contents b a && refuses cat a; }
across() { mv b moved/two/b && contents moved/two/b a; }
many() { mkdir many && for n in $(seq 300); do : >many/file$n; done && same "$(ls many | wc -l)" 300; }
removed() { rm -r many moved && refuses ls many; }
not_empty() { refuses rmdir one; }
names() { echo x >"Größe 漢字.txt" && contents "Größe 漢字.txt" x && [ -e *漢字.txt ]; }
folded() { echo x >Case.TXT && contents case.txt x && rm case.txt && forget && refuses ls Case.TXT; }
dated() { touch -d "2020-01-02 03:04:05" text.txt && same "$(date -r text.txt +%Y%m%d%H%M%S)" 20200102030405; }
read_only() { echo x >ro && chmod a-w ro && refuses sh -c 'echo y >ro' && forget && chmod a+w ro && echo z >ro && contents ro z; }
unlinked() { exec 3>open.txt && echo x >&3 && rm open.txt && exec 3>&- && refuses ls open.txt; }
exclusive() { mkdir once && refuses mkdir once && rmdir once; }
synced() { dd if=/dev/zero of=synced bs=4k count=64 conv=fsync 2>/dev/null && same "$(size synced)" 262144; }
space() { df /mnt | tail -1 | grep -q '[0-9]'; }
remounted() { cd / && umount /mnt && mount_share "$options" && cd "/mnt/$folder" && same "$(sum large.bin)" "$(sum /tmp/large)"; }
parallel() {
    for n in 1 2 3 4; do dd if=/dev/zero of=p$n bs=64k count=32 2>/dev/null & done
    wait
    for n in 1 2 3 4; do same "$(size p$n)" 2097152 || return 1; done
}

for options in vers=3.1.1 vers=3.1.1,seal vers=3.1.1,sign vers=3.0 vers=3.0,seal vers=2.1,sign; do
    variant=$options
    check mount mount_share "$options"
    folder=$(echo "$options" | tr ',=.' '___')
    mkdir "/mnt/$folder" && cd "/mnt/$folder" || { echo "FAIL $variant: enter"; umount /mnt; continue; }
    for name in text appended truncated extended large uncached patched sparse tree renamed replaced \
        across many removed not_empty names folded dated read_only unlinked exclusive synced \
        space parallel remounted; do
        check $name $name
    done
    cd /
    check unmount umount /mnt
done
echo done
poweroff -f
