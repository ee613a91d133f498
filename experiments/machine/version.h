/* version.h - The program's version, stated here and nowhere else; the Makefile reads this line. */
#ifndef QM_MACHINE_VERSION_H
#define QM_MACHINE_VERSION_H

#define QM_VERSION "0.1.0"

#endif
