#!/bin/sh
# The command `cardonfile`, for root: it runs as the user of the units, with their settings, unless the
# command's environment has another: CARDONFILE_DATABASE_URL=postgresql:///replaced cardonfile audit list
set -ae
given=$(export -p)
. /etc/cardonfile/settings
eval "$given"
HOME=/var/lib/cardonfile
exec setpriv --reuid cardonfile --regid cardonfile --init-groups -- \
    /opt/cardonfile/bin/cardonfile "$@"
